package nftables

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// faulty is a driver with a kernel that refuses more than the real one, and with a clock that the test moves.
type faulty struct {
	*Table
	now time.Time
	// refuses says why a message is refused; nil for none.
	refuses func(ObjectError) error
	// asked counts the transactions, by their first message.
	messages int
}

func (n namespace) openFaulty(t testing.TB) *faulty {
	t.Helper()
	f := &faulty{now: time.Unix(1_700_000_000, 0)}
	f.Table = New(Options{NetNS: n.fd, Fault: func(o ObjectError) error {
		f.messages++
		if f.refuses == nil {
			return nil
		}
		return f.refuses(o)
	}})
	f.quarantine.now = func() time.Time { return f.now }
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

var errInjected = errors.New("no")

// content refuses the desired content of an object, but not its drop-only replacement.
func content(object, name string) func(ObjectError) error {
	return func(o ObjectError) error {
		if o.Object == object && o.Name == name && !strings.Contains(o.Rule, "refused: ") && !strings.HasPrefix(o.Rule, "rule with handle") && (object != "chain" || o.Rule != "") {
			return errInjected
		}
		return nil
	}
}

// everything refuses all messages about an object.
func everything(object, name string) func(ObjectError) error {
	return func(o ObjectError) error {
		if o.Object == object && o.Name == name {
			return errInjected
		}
		return nil
	}
}

// unnamed has the kernel refuse without a name.
func unnamed(refuses func(ObjectError) error) func(ObjectError) error {
	return func(o ObjectError) error {
		if err := refuses(o); err != nil {
			return fmt.Errorf("%w: %w", err, kernel.ErrUnnamed)
		}
		return nil
	}
}

func anyOf(all ...func(ObjectError) error) func(ObjectError) error {
	return func(o ObjectError) error {
		for _, refuses := range all {
			if err := refuses(o); err != nil {
				return err
			}
		}
		return nil
	}
}

func refusedNames(r tables.Result) []string {
	var out []string
	for _, x := range r.Refused {
		out = append(out, x.Object+" "+x.Name)
	}
	return slices.Compact(out)
}

var blockStart = regexp.MustCompile(`(?m)^\t(chain|set|map) (\S+) \{`)

// objects divides nft's listing of the table by object, without counters.
func (n namespace) objects(t testing.TB) map[string]string {
	t.Helper()
	out := map[string]string{}
	listing := strings.TrimSuffix(n.list(t, "-s"), "}\n")
	at := blockStart.FindAllStringSubmatchIndex(listing, -1)
	for i, m := range at {
		end := len(listing)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		out[listing[m[2]:m[3]]+" "+listing[m[4]:m[5]]] = strings.TrimSpace(listing[m[0]:end])
	}
	return out
}

// wantLike checks that the kernel holds the same as in another namespace, except for the closed chains and
// for the objects that may be anything.
func wantLike(t testing.TB, clean, got map[string]string, closed, anything []string) {
	t.Helper()
	clean, got = mapClone(clean), mapClone(got)
	for _, name := range closed {
		if body := got["chain "+name]; strings.Count(body, "comment") != 1 || !strings.Contains(body, "drop comment \"flx:") {
			t.Errorf("chain %s is not closed: %s", name, body)
		}
		delete(clean, "chain "+name)
		delete(got, "chain "+name)
	}
	for _, name := range anything {
		delete(clean, name)
		delete(got, name)
	}
	if diff := cmp.Diff(clean, got); diff != "" {
		t.Errorf("the kernel differs (-clean +got):\n%s", diff)
	}
}

func mapClone(m map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		out[k] = v
	}
	return out
}
