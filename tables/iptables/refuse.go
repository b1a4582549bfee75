package iptables

import (
	"slices"
	"strings"

	"github.com/felixlike/felixlike/tables"
)

// refuseNamed quarantines the chain that a failure names. A base chain cannot be closed:
// then it returns an error.
func (q *quarantine) refuseNamed(f *failure) error {
	c := q.chains[f.about.chain]
	if c.desired.Hook != nil {
		return &tables.ObjectError{Object: "chain", Name: c.name, Rule: q.ruleName(f.about), Err: f}
	}
	q.refuse(c.name, q.ruleName(f.about), q.reason(c.name, f))
	return nil
}

// refuseFound quarantines a chain that a search has found.
func (q *quarantine) refuseFound(name string, f *failure) {
	rule := ""
	if f.about.chain == name {
		rule = q.ruleName(f.about)
	}
	q.refuse(name, rule, q.reason(name, f))
}

// ruleName names the rule that a line has written, by its place in the desired chain.
func (q *quarantine) ruleName(a about) string {
	c := q.chains[a.chain]
	if i := slices.Index(c.hashes, a.hash); i >= 0 {
		return tables.RuleName(i, c.desired.Rules[i])
	}
	return ""
}

// reason returns why a chain is refused. The tools do not describe a loop.
func (q *quarantine) reason(name string, f *failure) string {
	if loop := q.loop(name); loop != nil {
		return "it leads back to itself: " + strings.Join(loop, " > ")
	}
	return f.err.reason()
}

// loop returns the shortest way from a chain to itself, or nil.
func (q *quarantine) loop(name string) []string {
	from := map[string]string{}
	for todo := []string{name}; len(todo) > 0; todo = todo[1:] {
		c := q.chains[todo[0]]
		if c == nil || q.refused[c.name] != nil {
			continue
		}
		for _, f := range q.families {
			for _, to := range c.targets[f] {
				if from[to] != "" {
					continue
				}
				from[to] = c.name
				todo = append(todo, to)
			}
		}
	}
	if from[name] == "" {
		return nil
	}
	way := []string{name}
	for at := from[name]; at != name; at = from[at] {
		way = append(way, at)
	}
	way = append(way, name)
	slices.Reverse(way)
	return way
}
