package iptables

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/felixlike/felixlike/internal/isolate"
	"github.com/felixlike/felixlike/tables"
)

// quarantine holds the chains that the tool or the kernel has refused, and decides the
// content of each chain: closed chains drop everything.
type quarantine struct {
	*objects
	// refused are the quarantined chains. retried are those that this Apply tries again.
	refused, retried map[string]*refusal
	// closedBy has for each closed chain the refused chains that close it.
	closedBy map[string][]string
	// sets are the quarantined sets, by name.
	sets map[string]tables.Refusal
	// held are the chains that a search leaves as they are; nil while there is no search.
	held map[string]bool
	now  func() time.Time
}

func newQuarantine(o *objects) *quarantine {
	return &quarantine{objects: o, refused: map[string]*refusal{}, retried: map[string]*refusal{}, now: time.Now}
}

// refuse quarantines a chain that the kernel has refused. The next write closes it.
func (q *quarantine) refuse(name, rule, reason string) {
	r := q.retried[name]
	if r == nil {
		r = &refusal{}
	}
	delete(q.retried, name)
	r.rule, r.reason = rule, reason
	r.Refused(q.now())
	q.add(name, r)
}

// reject quarantines a chain that is wrong in itself, or that names a quarantined set.
func (q *quarantine) reject(name, rule string, err error) {
	next := &refusal{rule: rule, reason: err.Error(), Retry: isolate.Retry{Since: q.now(), Attempts: 1}}
	var bad *badSetError
	if errors.As(err, &bad) {
		next.set = bad.set
	}
	if r := q.refused[name]; r == nil || r.rule != next.rule || r.reason != next.reason {
		q.add(name, next)
	}
}

func (q *quarantine) add(name string, r *refusal) {
	q.refused[name] = r
	q.mark(name)
	q.relocate = true
}

// release ends the quarantine of a chain.
func (q *quarantine) release(name string) {
	delete(q.retried, name)
	if q.refused[name] != nil {
		delete(q.refused, name)
		q.mark(name)
		q.relocate = true
	}
}

// changed releases a chain after a change of its desired content. While chains are
// quarantined, other chains may be closed by them now, though no target has changed.
func (q *quarantine) changed(name string) {
	q.relocate = q.relocate || len(q.refused) > 0
	q.release(name)
}

// retry releases the chains that are due. It keeps their refusal until the kernel has
// accepted them.
func (q *quarantine) retry() {
	for name, r := range q.refused {
		if !r.Next.IsZero() && r.Due(q.now()) {
			q.release(name)
			q.retried[name] = r
		}
	}
}

// accepted records that the kernel holds the desired state of all other chains.
func (q *quarantine) accepted() { clear(q.retried) }

// setSets sets the quarantined sets.
func (q *quarantine) setSets(sets []tables.Refusal) {
	next := map[string]tables.Refusal{}
	for _, r := range sets {
		next[r.Name] = r
		if before, ok := q.sets[r.Name]; !ok || before.Reason != r.Reason {
			q.recheck = true
		}
	}
	q.recheck = q.recheck || len(next) != len(q.sets)
	q.sets = next
}

// hold has a search leave the chains as they are, and admit has it try them again.
func (q *quarantine) hold(names []string) {
	if q.held == nil {
		q.held = map[string]bool{}
	}
	for _, name := range names {
		q.held[name] = true
	}
}

func (q *quarantine) admit(names []string) {
	for _, name := range names {
		delete(q.held, name)
	}
}

// endSearch admits all chains.
func (q *quarantine) endSearch() { q.held = nil }

// searching reports whether a search holds chains, or has admitted them again.
func (q *quarantine) searching() bool { return q.held != nil }

// holds reports whether a search leaves the chain as it is.
func (q *quarantine) holds(name string) bool { return q.held[name] }

// content returns the desired content of the chain in one of its places.
func (q *quarantine) content(c *chain, p place) content {
	if closed, why := q.closed(c); closed {
		return dropOnly(p, why)
	}
	return c.desiredContent(p)
}

// closed reports whether the chain is to be closed, and why.
func (q *quarantine) closed(c *chain) (closed bool, why string) {
	if r := q.refused[c.name]; r != nil {
		return true, r.reason
	}
	if causes := q.closedBy[c.name]; len(causes) > 0 {
		return true, "chain " + causes[0]
	}
	return q.held[c.name], "its turn comes"
}

// updateClosed finds the chains that refused chains close.
func (q *quarantine) updateClosed() {
	closedBy := q.causes(q.refused)
	for name := range q.chains {
		if !slices.Equal(closedBy[name], q.closedBy[name]) {
			q.mark(name)
		}
	}
	q.closedBy = closedBy
}

// causes returns for each closed chain the refused chains that close it: first itself,
// then the chains that it asks (see tables.Chain.Asked).
func (q *quarantine) causes(refused map[string]*refusal) map[string][]string {
	causes := map[string][]string{}
	if len(refused) == 0 {
		return causes
	}
	for name, c := range q.chains {
		if refused[name] != nil {
			causes[name] = append(causes[name], name)
		}
		if c.desired == nil || c.desired.Hook != nil {
			continue
		}
		for _, asked := range c.desired.Asked(q.desiredChain) {
			if refused[asked.Name] != nil {
				causes[name] = append(causes[name], asked.Name)
			}
		}
	}
	return causes
}

// refusals lists the quarantined objects for the Result: chains, then sets, with the
// chains that are closed because of them. A chain that an unfinished Apply tried again
// is still quarantined.
func (q *quarantine) refusals() []tables.Refusal {
	if len(q.refused)+len(q.retried)+len(q.sets) == 0 {
		return nil
	}
	all := maps.Clone(q.retried)
	maps.Copy(all, q.refused)
	causes := q.causes(all)
	closed, closedBySet := map[string][]string{}, map[string][]string{}
	for _, name := range sorted(causes) {
		for _, cause := range causes[name] {
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
				Object: "chain", Name: name, Rule: r.rule, Origin: q.originOf(name), Reason: r.reason,
				Since: r.Since, NextTry: r.Next, Attempts: r.Attempts, Closed: closed[name], ClosedOf: q.originsOf(closed[name]),
			})
		}
	}
	for _, name := range sorted(q.sets) {
		r := q.sets[name]
		r.Closed, r.ClosedOf = closedBySet[name], q.originsOf(closedBySet[name])
		out = append(out, r)
	}
	return out
}

// originOf returns the origin of a desired chain, or nil.
func (q *quarantine) originOf(name string) tables.Origin {
	if c := q.desiredChain(name); c != nil {
		return c.Origin
	}
	return nil
}

func (q *quarantine) originsOf(names []string) []tables.Origin {
	var all []tables.Origin
	for _, name := range names {
		all = append(all, q.originOf(name))
	}
	return all
}
