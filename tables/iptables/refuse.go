package iptables

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/felixlike/felixlike/tables"
)

// The time until a refused chain is tried again, doubled with each attempt up
// to the longest.
const (
	firstRetry   = time.Second
	longestRetry = 5 * time.Minute
)

// refuse sets a chain aside that the kernel does not take. It stands closed from
// the next write on.
func (t *Table) refuse(name, rule, reason string) {
	r := t.retried[name]
	if r == nil {
		r = &refusal{since: t.now()}
	}
	delete(t.retried, name)
	r.rule, r.reason = rule, reason
	r.next = t.now().Add(min(firstRetry<<min(r.attempts, 16), longestRetry))
	r.attempts++
	t.setAside(name, r)
}

// reject sets a chain aside that is wrong in itself, or that relies on a set
// which is.
func (t *Table) reject(name, rule string, err error) {
	next := &refusal{rule: rule, reason: err.Error(), since: t.now(), attempts: 1}
	var bad *badSetError
	if errors.As(err, &bad) {
		next.set = bad.set
	}
	if r := t.refused[name]; r == nil || r.rule != next.rule || r.reason != next.reason {
		t.setAside(name, next)
	}
}

// badSetError is why a rule that names a set cannot be programmed.
type badSetError struct{ set, reason string }

// Error says it in words.
func (e *badSetError) Error() string { return fmt.Sprintf("set %s is set aside: %s", e.set, e.reason) }

// SetsAside sets the quarantined sets, as the driver of the sets reports them. From the
// next Apply on, the chains that name them are closed, until a later call leaves them
// out. Call it after the update of the sets.
func (t *Table) SetsAside(sets []tables.Refusal) {
	next := map[string]tables.Refusal{}
	for _, r := range sets {
		next[r.Name] = r
		if before, ok := t.badSets[r.Name]; !ok || before.Reason != r.Reason {
			t.recheck = true
		}
	}
	t.recheck = t.recheck || len(next) != len(t.badSets)
	t.badSets = next
}

// ruleName names the rule that a line has written, by its place in the wanted
// chain.
func (t *Table) ruleName(a about) string {
	c := t.chains[a.chain]
	if i := slices.Index(c.hashes, a.hash); i >= 0 {
		return tables.RuleName(i, c.want.Rules[i])
	}
	return ""
}

func (t *Table) setAside(name string, r *refusal) {
	t.refused[name] = r
	t.touched[name] = struct{}{}
	t.rereach = true
}

// forgive wants a chain again as it is.
func (t *Table) forgive(name string) {
	delete(t.retried, name)
	if t.refused[name] != nil {
		delete(t.refused, name)
		t.touched[name] = struct{}{}
		t.rereach = true
	}
}

// retry makes the chains that are due desired again. It keeps their refusal until the
// kernel has accepted them.
func (t *Table) retry() {
	for name, r := range t.refused {
		if !r.next.IsZero() && !t.now().Before(r.next) {
			t.forgive(name)
			t.retried[name] = r
		}
	}
}

// close finds the chains that are closed because of refused objects.
func (t *Table) close() {
	shut := t.shutBy(t.refused)
	for name := range t.chains {
		if !slices.Equal(shut[name], t.shut[name]) {
			t.touched[name] = struct{}{}
		}
	}
	t.shut = shut
}

// shutBy returns for each chain that stands closed because of refused ones which
// those are: itself first, then those that it asks (see tables.Chain.Asked).
func (t *Table) shutBy(refused map[string]*refusal) map[string][]string {
	shut := map[string][]string{}
	if len(refused) == 0 {
		return shut
	}
	for name, c := range t.chains {
		if refused[name] != nil {
			shut[name] = append(shut[name], name)
		}
		if c.want == nil || c.want.Hook != nil {
			continue
		}
		for _, asked := range c.want.Asked(t.wanted) {
			if refused[asked.Name] != nil {
				shut[name] = append(shut[name], asked.Name)
			}
		}
	}
	return shut
}

// wanted returns the chain as it is wanted, or nil.
func (t *Table) wanted(name string) *tables.Chain {
	if c := t.chains[name]; c != nil {
		return c.want
	}
	return nil
}

// refusals lists the quarantined objects for the Result: chains, then sets, with the
// chains that are closed because of them. A chain that an unfinished Apply tried again
// is still quarantined.
func (t *Table) refusals() []tables.Refusal {
	if len(t.refused)+len(t.retried)+len(t.badSets) == 0 {
		return nil
	}
	all := maps.Clone(t.retried)
	maps.Copy(all, t.refused)
	shut := t.shutBy(all)
	closed, closedBySet := map[string][]string{}, map[string][]string{}
	for _, name := range sorted(shut) {
		for _, cause := range shut[name] {
			if set := all[cause].set; set == "" {
				closed[cause] = append(closed[cause], name)
			} else if !slices.Contains(closedBySet[set], name) {
				closedBySet[set] = append(closedBySet[set], name)
			}
		}
	}
	var out []tables.Refusal
	for _, name := range sorted(all) {
		if r := all[name]; r.set == "" {
			out = append(out, tables.Refusal{
				Object: "chain", Name: name, Rule: r.rule, Reason: r.reason,
				Since: r.since, NextTry: r.next, Attempts: r.attempts, Closed: closed[name],
			})
		}
	}
	for _, name := range sorted(t.badSets) {
		r := t.badSets[name]
		r.Closed = closedBySet[name]
		out = append(out, r)
	}
	return out
}

// holds reports whether the chain is left alone for now.
func (t *Table) holds(c *chain) bool { return t.holding[c.name] }
