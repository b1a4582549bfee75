package policyflows

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/ovstest"
)

// recorder keeps what is set.
type recorder struct {
	flows map[string]func() []openflow.Flow
	// sets are the keys set or removed since the last look.
	sets []string
}

func newRecorder() *recorder { return &recorder{flows: map[string]func() []openflow.Flow{}} }

func (r *recorder) SetFlows(key string, render func() []openflow.Flow) {
	r.flows[key] = render
	r.sets = append(r.sets, key)
}

func (r *recorder) RemoveFlows(key string) {
	delete(r.flows, key)
	r.sets = append(r.sets, key)
}

func (r *recorder) all() []openflow.Flow {
	var all []openflow.Flow
	for _, key := range slices.Sorted(maps.Keys(r.flows)) {
		all = append(all, r.flows[key]()...)
	}
	return all
}

// text returns all flows, sorted.
func (r *recorder) text() string {
	var lines []string
	for _, f := range r.all() {
		lines = append(lines, f.String())
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// parsed returns all flows, none twice with one match.
func (r *recorder) parsed(t fataler) []*flowtext.Flow {
	t.Helper()
	var all []*flowtext.Flow
	seen := map[string]string{}
	for _, f := range r.all() {
		text := f.String()
		match, _, _ := strings.Cut(text, " actions=")
		if other := seen[match]; other == text {
			continue
		} else if other != "" {
			t.Fatalf("flows with one match:\n%s\n%s", other, text)
		}
		seen[match] = text
		p, err := ovstest.ParseFlow(text)
		if err != nil {
			t.Fatalf("%v", err)
		}
		all = append(all, p)
	}
	return all
}

// fataler is a test, also one of rapid.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func newStore(families ...model.Family) (*Store, *recorder) {
	r := newRecorder()
	s := New(Options{Flows: r})
	s.SetFamilies(families)
	return s, r
}

// crowd has every set of ports be crowded.
func crowd(s *Store) {
	for l := range s.portSets {
		s.portSets[l].limit = 0
	}
}

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func members(texts ...string) []model.Member {
	var all []model.Member
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, model.Member{Prefix: p})
		} else {
			all = append(all, model.AddressMember(netip.MustParseAddr(text)))
		}
	}
	return all
}

func networkPolicy(name string) model.PolicyID {
	return model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "default", Name: name}
}

func tcp(first, last uint16) model.PortRange {
	return model.PortRange{Protocol: model.TCP, First: first, Last: last}
}

func testPod(n int, ingress, egress model.Applied) Pod {
	return Pod{
		Interface: fmt.Sprintf("fx-%d", n), ID: model.PodID{Namespace: "default", Name: fmt.Sprintf("pod-%d", n)},
		Port: uint32(n), Addresses: addrs(fmt.Sprintf("10.10.1.%d", n), fmt.Sprintf("fd00::%x", n)),
		Open: true, Ingress: ingress, Egress: egress,
	}
}

func apply(ids ...model.PolicyID) model.Applied {
	var a model.Applied
	for _, id := range ids {
		switch id.Tier {
		case model.TierAdmin:
			a.Admin = append(a.Admin, id)
		case model.TierBaseline:
			a.Baseline = append(a.Baseline, id)
		default:
			a.NetworkPolicies = append(a.NetworkPolicies, id)
		}
	}
	return a
}

// firstTry returns the time of the first retry of refused policies.
func firstTry(refused []tables.Refusal) (first time.Time) {
	for _, r := range refused {
		if !r.NextTry.IsZero() && (first.IsZero() || r.NextTry.Before(first)) {
			first = r.NextTry
		}
	}
	return first
}
