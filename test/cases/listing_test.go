package cases

import (
	"bytes"
	"io"
	"reflect"
	"slices"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/compare"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/names"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// listing writes a node's state, without that of base.
type listing struct {
	state, base *dump.State
	names       *control.Model
}

// rest returns the chains, sets, elements and flows that base does not have.
func (l listing) rest() *dump.State {
	s := compare.Canonical(l.state, compare.Options{OnlyOurs: true})
	if l.base == nil {
		return s
	}
	base := compare.Canonical(l.base, compare.Options{OnlyOurs: true})
	for _, t := range s.Tables {
		for _, b := range base.Tables {
			if t.Dialect == b.Dialect && t.Family == b.Family && t.Name == b.Name {
				t.Chains = others(t.Chains, b.Chains)
				t.Sets = otherSets(t.Sets, b.Sets)
			}
		}
	}
	s.Tables = slices.DeleteFunc(s.Tables, func(t *dump.Table) bool { return len(t.Chains)+len(t.Sets) == 0 })
	s.IPSets = otherSets(s.IPSets, base.IPSets)
	s.Flows = others(s.Flows, base.Flows)
	return s
}

// others returns those of all that are not among known.
func others[T any](all, known []*T) []*T {
	return slices.DeleteFunc(all, func(one *T) bool {
		return slices.ContainsFunc(known, func(k *T) bool { return reflect.DeepEqual(one, k) })
	})
}

// otherSets returns sets without the elements of known ones.
func otherSets(all, known []*dump.Set) []*dump.Set {
	var rest []*dump.Set
	for _, s := range others(all, known) {
		for _, k := range known {
			if s.Name == k.Name {
				s.Elements = slices.DeleteFunc(s.Elements, func(e dump.Element) bool {
					return slices.ContainsFunc(k.Elements, func(o dump.Element) bool { return reflect.DeepEqual(e, o) })
				})
			}
		}
		rest = append(rest, s)
	}
	return rest
}

// write returns the output of a writer of package dump, with names.
func (l listing) write(t *testing.T, write func(io.Writer, *dump.State, dump.TextOptions) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b, l.rest(), dump.TextOptions{Note: names.Of(l.names).Note}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func (l listing) nft(t *testing.T) string {
	t.Helper()
	return l.write(t, func(w io.Writer, s *dump.State, o dump.TextOptions) error { return dump.WriteNFT(w, s.Tables, o) })
}

func (l listing) iptables(t *testing.T, f model.Family) string {
	t.Helper()
	return l.write(t, func(w io.Writer, s *dump.State, o dump.TextOptions) error {
		return dump.WriteIPTables(w, s.Tables, f, o)
	})
}

func (l listing) ipsets(t *testing.T) string {
	t.Helper()
	return l.write(t, func(w io.Writer, s *dump.State, o dump.TextOptions) error { return dump.WriteIPSets(w, s.IPSets, o) })
}

func (l listing) flows(t *testing.T) string {
	t.Helper()
	return l.write(t, func(w io.Writer, s *dump.State, o dump.TextOptions) error { return dump.WriteFlows(w, s.Flows, o) })
}
