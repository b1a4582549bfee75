package iptables

import "github.com/felixlike/felixlike/tables"

// planner finds the places of the chains, and writes the scripts that make the kernel
// hold the desired state.
type planner struct {
	*observed
	quarantine *quarantine
	// bases are the names of the desired base chains.
	bases map[string]struct{}
}

// locate finds the places of each chain: those of the base chains from which rules lead
// to it. A chain that no rule leads to has no place, nor has a base chain a place where
// it has no rules.
func (l *planner) locate() {
	if !l.relocate {
		return
	}
	l.quarantine.updateClosed()
	found := map[string]placeSet{}
	l.bases = map[string]struct{}{}
	for name, c := range l.chains {
		if c.desired == nil || c.desired.Hook == nil {
			continue
		}
		l.bases[name] = struct{}{}
		e, err := entryOf(*c.desired.Hook)
		if err != nil {
			continue
		}
		for _, f := range l.families {
			if p := placeOf(f, e.table); len(l.quarantine.content(c, p).hashes) > 0 {
				l.follow(c, p, found)
			}
		}
	}
	for name, c := range l.chains {
		if c.places != found[name] {
			c.places = found[name]
			l.mark(name)
		}
	}
	l.relocate = false
}

// follow adds the place to the chain and to all chains that it leads to.
func (l *planner) follow(from *chain, p place, found map[string]placeSet) {
	todo := []*chain{from}
	for len(todo) > 0 {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if c == nil || c.desired == nil || found[c.name].has(p) || checkName(c.name, MaxName) != nil {
			continue
		}
		here := found[c.name]
		here.add(p)
		found[c.name] = here
		if l.quarantine.refused[c.name] != nil {
			continue // it is closed and leads nowhere
		}
		for _, name := range c.targets[p.family()] {
			todo = append(todo, l.chains[name])
		}
	}
}

// entries returns our rules that the kernel's chains of a place have to begin with, as
// texts: they lead to the base chains.
func (l *planner) entries(p place) map[entry][]string {
	desired := map[entry][]string{}
	for _, name := range sorted(l.bases) {
		c := l.chains[name]
		if !c.places.has(p) {
			continue
		}
		e, err := entryOf(*c.desired.Hook)
		if err != nil || e.table != p.table() {
			continue
		}
		rule := tables.Rule{Action: tables.Jump{Chain: name}, Comment: "felixlike " + name}
		desired[e] = append(desired[e], render(rule, rule.Hash()))
	}
	return desired
}
