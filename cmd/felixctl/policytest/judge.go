package policytest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
)

// claims are the statements so far, and the rules that decided.
type claims struct {
	all     []statement
	decided map[oracle.RuleID]bool
}

// missing returns what the statement names and the cluster has not.
func (s *statement) missing(w *preview.World) map[string]*preview.Set {
	all := maps.Clone(s.from.named)
	maps.Copy(all, s.to.named)
	maps.DeleteFunc(all, func(_ string, set *preview.Set) bool { return len(w.Ends(set)) > 0 })
	return all
}

// judge judges the packets of a statement. If ctx ends before, it returns its error.
func (c *claims) judge(ctx context.Context, w *preview.World, s statement) (Expectation, error) {
	e := Expectation{Text: s.text}
	from, to := w.Ends(s.from.set), w.Ends(s.to.set)
	var err error
	if s.from.possible {
		from, err = withPossible(ctx, w, s.from.set, from, to, s.to.possible, false)
	}
	if s.to.possible && err == nil {
		to, err = withPossible(ctx, w, s.to.set, to, from, s.from.possible, true)
	}
	if err != nil {
		e.Fault = err.Error()
		return e, ctx.Err()
	}
	rest, implicit := s.from.rest || s.to.rest, s.from.all || s.to.all || s.from.possible || s.to.possible
	seen, packets := false, 0 // before and after the filters
	for _, b := range to {
		about := slices.DeleteFunc(slices.Clone(c.all), func(o statement) bool { return !o.to.set.Has(b) })
		for _, a := range from {
			if ctx.Err() != nil {
				return e, ctx.Err()
			}
			var before []model.PortRange
			var whole bool
			if rest {
				if before, whole = portsFrom(a, about); whole && seen {
					continue
				}
			}
			w.Judge(a, b, s.ports, before, func(p preview.Packets) {
				seen = true
				// No policy can deny what a node sends to its pods: a test about everything does not expect that.
				ownNode := p.Ingress.Why == oracle.OwnNode && p.Egress.Why == oracle.OwnNode
				if whole || implicit && ownNode || slices.ContainsFunc(before, func(r model.PortRange) bool { return preview.Covers(r, p.Ports) }) {
					return
				}
				packets++
				c.note(p.Verdict)
				if p.Allowed != s.allow {
					e.add(p)
				}
			})
		}
	}
	if !seen || packets == 0 && !rest {
		e.Fault = "it is about no packet: policies judge packets from and to pods, other than those of a pod to itself"
	}
	c.all = append(c.all, s)
	for i := range e.Against {
		e.Against[i].Ports = preview.PortsText(e.Against[i].ranges)
	}
	e.Holds = e.Fault == "" && len(e.Against) == 0
	return e, nil
}

// withPossible adds the pods that could exist. If these could be on both sides, each policy may apply.
func withPossible(ctx context.Context, w *preview.World, s *preview.Set, ends, others []*preview.End, both, destination bool) ([]*preview.End, error) {
	if both {
		others = nil
	}
	more, err := w.Possible(ctx, s, others, destination)
	return slices.Concat(ends, more), err
}

// portsFrom returns the ports that the statements are about for a source, or that all are.
func portsFrom(from *preview.End, about []statement) (ports []model.PortRange, whole bool) {
	for _, s := range about {
		if s.from.set.Has(from) {
			if len(s.ports) == 0 {
				return nil, true
			}
			ports = append(ports, s.ports...)
		}
	}
	return ports, false
}

// note notes the rules that decided.
func (c *claims) note(v oracle.Verdict) {
	for _, end := range []struct {
		model.Direction
		oracle.Decision
	}{{model.Egress, v.Egress}, {model.Ingress, v.Ingress}} {
		switch {
		case end.Allowed != v.Allowed:
			continue
		case end.Why == oracle.Isolated:
			for _, id := range end.Isolating {
				c.decided[oracle.RuleID{Policy: id, Rule: end.Direction.String()}] = true
			}
		case end.Why == oracle.RuleAllows || end.Why == oracle.RuleDenies:
			c.decided[oracle.RuleID{Policy: end.Policy, Rule: end.Rule, Title: end.Title}] = true
		}
		for _, passed := range end.Passed {
			c.decided[passed] = true
		}
	}
}

// add adds packets with another verdict than the expected one.
func (e *Expectation) add(p preview.Packets) {
	a := Against{From: p.From.String(), To: p.To.String(), Verdict: preview.Denied, Because: p.Because()}
	if p.Allowed {
		a.Verdict = preview.Allowed
	}
	same := slices.IndexFunc(e.Against, func(o Against) bool { return o.From == a.From && o.To == a.To && o.Because == a.Because })
	if same < 0 {
		e.Against, same = append(e.Against, a), len(e.Against)
	}
	if ranges := &e.Against[same].ranges; !slices.Contains(*ranges, p.Ports) { // both families have them
		*ranges = append(*ranges, p.Ports)
	}
}

// coverage says which rules decided.
func coverage(rules []oracle.RuleID, decided map[oracle.RuleID]bool) Coverage {
	c := Coverage{Rules: len(rules)}
	for _, r := range rules {
		switch whole := r.Rule == model.Ingress.String() || r.Rule == model.Egress.String(); {
		case decided[r]:
			c.Decided++
		case whole:
			c.Undecided = append(c.Undecided, fmt.Sprintf("the isolation of %s of %s", r.Rule, r.Policy))
		default:
			c.Undecided = append(c.Undecided, fmt.Sprintf("rule %s of %s", model.TitledRule(r.Rule, r.Title), r.Policy))
		}
	}
	return c
}
