package policyflows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/tables"
)

// The waits between two tries of a policy that is set aside: the first one,
// which doubles with each refusal, and the longest.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// Table is the flow table that the store's flows are in. *openflow.FlowTable is
// one.
type Table interface {
	Apply(ctx context.Context) (openflow.Result, error)
	// Len returns the number of flows.
	Len() int
}

// Programmer applies the flow table of a store. What the switch refuses is
// traced to the policies it was made of, and these are set aside: their pods
// are closed in that direction, and all else is programmed by the same Apply.
type Programmer struct {
	store *Store
	table Table
	now   func() time.Time
	aside map[side]*refusal
	round int
}

// refusal is why a policy is set aside, and until when.
type refusal struct {
	policy *policy
	// key is the group of flows that was refused, reason why.
	key, reason string
	since, next time.Time
	attempts    int
	// round is the Apply that it was last refused in.
	round int
}

// NewProgrammer returns a programmer of the store, whose flows go to the table.
func NewProgrammer(s *Store, t Table) *Programmer {
	return &Programmer{store: s, table: t, now: time.Now, aside: map[side]*refusal{}}
}

// Apply programs what the store wants. What is set aside is no error but listed
// in the Result; an error means that nothing changed.
func (p *Programmer) Apply(ctx context.Context) (tables.Result, error) {
	began := p.now()
	p.round++
	p.retry()
	for {
		did, err := p.table.Apply(ctx)
		if err == nil {
			return p.result(did, began), nil
		}
		refused := reasons(err)
		if len(refused) == 0 {
			return tables.Result{Refused: p.refusals()}, err
		}
		if !p.setAside(refused) {
			return tables.Result{Refused: p.refusals()}, err
		}
		p.store.Complete()
	}
}

// NextTry returns when the first of the policies that are set aside is tried
// again, by the next Apply from then on; false if none is.
func (p *Programmer) NextTry() (time.Time, bool) {
	var first time.Time
	for _, r := range p.aside {
		if first.IsZero() || r.next.Before(first) {
			first = r.next
		}
	}
	return first, !first.IsZero()
}

// retry has policies tried again whose time has come. Those that have changed
// the store has put back already, and those that are no more are forgotten.
func (p *Programmer) retry() {
	now := p.now()
	for at, r := range p.aside {
		switch {
		case p.store.policies[at] != r.policy || !r.policy.known:
			delete(p.aside, at)
		case r.policy.refused && !now.Before(r.next):
			p.store.lift(r.policy)
		}
	}
	p.store.Complete()
}

// refusedKey is a group of flows that cannot be programmed.
type refusedKey struct{ key, reason string }

// reasons returns the groups of flows that an error names.
func reasons(err error) []refusedKey {
	var refused []refusedKey
	if e := new(openflow.BundleError); errors.As(err, &e) {
		for _, r := range e.Refusals {
			refused = append(refused, refusedKey{r.Mod.Key, fmt.Sprintf("flow %s: %s", shortened(r.Mod.Flow.String()), r.Reason)})
		}
	}
	if e := new(openflow.ConflictError); errors.As(err, &e) {
		refused = append(refused, refusedKey{e.Keys[1], "conflicts with " + e.Keys[0]})
	}
	return refused
}

// maxFlowText bounds how much of a flow a reason has: one may be of thousands of
// actions.
const maxFlowText = 200

func shortened(flow string) string {
	if len(flow) > maxFlowText {
		return flow[:maxFlowText] + "..."
	}
	return flow
}

// setAside takes the policies behind groups of flows out of what is programmed.
// It reports whether that may help: each group is of some policy, and not all
// of these are out already.
func (p *Programmer) setAside(refused []refusedKey) bool {
	helps := false
	for _, r := range refused {
		found := p.store.behind(r.key)
		if len(found) == 0 {
			return false
		}
		for _, q := range found {
			helps = helps || !q.refused
			p.note(q, r)
		}
	}
	return helps
}

// note sets a policy aside, because of a group of flows that it has a part in.
func (p *Programmer) note(q *policy, why refusedKey) {
	a := p.aside[q.side]
	if a == nil || a.policy != q {
		a = &refusal{policy: q, since: p.now()}
		p.aside[q.side] = a
	}
	if a.round != p.round {
		a.round = p.round
		a.attempts++
	}
	a.key, a.reason = why.key, why.reason
	a.next = p.now().Add(min(firstRetry<<min(a.attempts-1, 16), lastRetry))
	p.store.refuse(q)
}

func (p *Programmer) result(did openflow.Result, began time.Time) tables.Result {
	for at, r := range p.aside {
		if !r.policy.refused {
			delete(p.aside, at) // the switch has taken it
		}
	}
	return tables.Result{
		Messages: did.Messages, RulesAdded: did.Added, RulesDeleted: did.Deleted, Rules: p.table.Len(),
		FullRead: did.FullRead, Repaired: did.Repaired, Duration: p.now().Sub(began), Refused: p.refusals(),
	}
}

// refusals lists what is set aside: policies by direction, each with the pods
// that it closes.
func (p *Programmer) refusals() []tables.Refusal {
	var all []tables.Refusal
	for at, r := range p.aside {
		if r.policy.refused {
			all = append(all, tables.Refusal{
				Object: Object, Name: at.id.String(), Rule: at.direction.String(), Reason: r.key + ": " + r.reason,
				Since: r.since, NextTry: r.next, Attempts: r.attempts, Closed: r.policy.podNames(),
			})
		}
	}
	for _, q := range p.store.policies {
		reason := q.standing()
		if reason == "" {
			q.closedSince = time.Time{}
			continue
		}
		if q.closedSince.IsZero() {
			q.closedSince = p.now()
		}
		all = append(all, tables.Refusal{
			Object: Object, Name: q.id.String(), Rule: q.direction.String(), Attempts: 1, Closed: q.podNames(), Since: q.closedSince,
			Reason: reason,
		})
	}
	slices.SortFunc(all, func(a, b tables.Refusal) int {
		return strings.Compare(a.Name+"\x00"+a.Rule, b.Name+"\x00"+b.Rule)
	})
	return all
}

// Object is what a Refusal calls its object: a policy by its identifier, of
// which Rule is the direction and Closed are the pods.
const Object = "policy"

func (q *policy) podNames() []string {
	var names []string
	for p := range q.pods {
		names = append(names, p.ID.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}
