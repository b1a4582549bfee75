package policyflows

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/internal/isolate"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/tables"
)

// Table is the flow table that the store's flows are in. *openflow.FlowTable is
// one.
type Table interface {
	Apply(ctx context.Context) (openflow.Result, error)
	// Len returns the number of flows.
	Len() int
}

// Programmer applies the flow table of a store. It traces refused flows to the
// policies that they were made of, and quarantines these policies: their pods
// are closed in that direction, and all else is programmed by the same Apply.
type Programmer struct {
	store   *Store
	table   Table
	now     func() time.Time
	refused map[side]*refusal
	round   int
}

// refusal is why a policy is quarantined, and until when.
type refusal struct {
	policy *policy
	// flows is the group of flows that was refused, reason why.
	flows, reason string
	isolate.Retry
	// round is the Apply that it was last refused in.
	round int
}

// NewProgrammer returns a programmer that writes the flows of the store to the table.
func NewProgrammer(s *Store, t Table) *Programmer {
	return &Programmer{store: s, table: t, now: time.Now, refused: map[side]*refusal{}}
}

// Apply programs the flows of the store. If the switch refuses flows that log or report, it
// turns that off (Store.Logged, Store.Reported) and closes no pod for it. A quarantined policy is no error but listed
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
		if p.unreport(refused) {
			continue
		}
		if !p.quarantine(refused) {
			return tables.Result{Refused: p.refusals()}, err
		}
		p.store.Complete()
	}
}

// unreport turns the log or the reports off if refused flows have them: no policy is
// quarantined because it logs or reports. It reports whether that may help.
func (p *Programmer) unreport(refused []refusedKey) bool {
	about := func(of func(reason string) bool) bool {
		return slices.ContainsFunc(refused, func(r refusedKey) bool { return of(r.reason) })
	}
	switch {
	case p.store.Logged() && about(AboutLog):
		p.store.Log(false)
	case p.store.Reported() && about(AboutReport):
		p.store.Report(false)
	default:
		return false
	}
	p.store.Complete()
	return true
}

// retry releases the policies that are due for another try. The store has released
// changed policies already. retry forgets deleted policies.
func (p *Programmer) retry() {
	now := p.now()
	for at, r := range p.refused {
		switch {
		case p.store.policies[at] != r.policy || !r.policy.known:
			delete(p.refused, at)
		case r.policy.refused && r.Due(now):
			p.store.quarantine.lift(r.policy)
		}
	}
	p.store.Complete()
}

// quarantine quarantines the policies behind groups of flows.
// It reports whether that may help: each group is of some policy, and not all
// of these are out already.
func (p *Programmer) quarantine(refused []refusedKey) bool {
	helps := false
	for _, r := range refused {
		found := p.store.renderer.policiesOf(r.key)
		if len(found) == 0 {
			return false
		}
		for _, q := range found {
			helps = helps || !q.refused
			p.record(q, r)
		}
	}
	return helps
}

// record quarantines a policy because of a group of flows that it has a part in.
func (p *Programmer) record(q *policy, why refusedKey) {
	a := p.refused[q.side]
	if a == nil || a.policy != q {
		a = &refusal{policy: q}
		p.refused[q.side] = a
	}
	if a.round != p.round {
		a.round = p.round
		a.Refused(p.now())
	} else {
		a.RefusedAgain(p.now())
	}
	a.flows, a.reason = why.key, why.reason
	p.store.quarantine.refuse(q)
}

func (p *Programmer) result(did openflow.Result, began time.Time) tables.Result {
	for at, r := range p.refused {
		if !r.policy.refused {
			delete(p.refused, at) // the switch has taken it
		}
	}
	return tables.Result{
		Messages: did.Messages, RulesAdded: did.Added, RulesDeleted: did.Deleted, Rules: p.table.Len(),
		FullRead: did.FullRead, Repaired: did.Repaired, Duration: p.now().Sub(began), Refused: p.refusals(),
	}
}

// refusals lists the quarantined policies by direction, each with the pods
// that it closes.
func (p *Programmer) refusals() []tables.Refusal {
	var all []tables.Refusal
	for at, r := range p.refused {
		if r.policy.refused {
			all = append(all, tables.Refusal{
				Object: Object, Name: at.id.String(), Rule: at.direction.String(), Reason: r.flows + ": " + r.reason,
				Origin: at.origin(), Since: r.Since, NextTry: r.Next, Attempts: r.Attempts,
			}.ClosingPods(r.policy.podIDs()))
		}
	}
	for _, q := range p.store.policies {
		reason := q.fault()
		if reason == "" {
			q.closedSince = time.Time{}
			continue
		}
		if q.closedSince.IsZero() {
			q.closedSince = p.now()
		}
		all = append(all, tables.Refusal{
			Object: Object, Name: q.id.String(), Rule: q.direction.String(), Attempts: 1, Since: q.closedSince,
			Origin: q.origin(), Reason: reason,
		}.ClosingPods(q.podIDs()))
	}
	slices.SortFunc(all, func(a, b tables.Refusal) int {
		return strings.Compare(a.Name+"\x00"+a.Rule, b.Name+"\x00"+b.Rule)
	})
	return all
}

// Object is the kind of object in a Refusal: a policy by its identifier, of
// which Rule is the direction and Closed are the pods.
const Object = "policy"
