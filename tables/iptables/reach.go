package iptables

// reach finds out where each chain lives: in the places of the base chains from
// which rules lead to it. A chain that nothing leads to lives nowhere, and a
// base chain not where it has no rules.
func (t *Table) reach() {
	if !t.rereach {
		return
	}
	t.close()
	lives := map[string]placeSet{}
	t.bases = map[string]struct{}{}
	for name, c := range t.chains {
		if c.want == nil || c.want.Hook == nil {
			continue
		}
		t.bases[name] = struct{}{}
		e, err := entryOf(*c.want.Hook)
		if err != nil {
			continue
		}
		for _, f := range t.families {
			if p := placeOf(f, e.table); len(t.content(c, p).hashes) > 0 {
				t.walk(c, p, lives)
			}
		}
	}
	for name, c := range t.chains {
		if c.lives != lives[name] {
			c.lives = lives[name]
			t.touched[name] = struct{}{}
		}
	}
	t.rereach = false
}

// walk adds the place to the chain and to all that it leads to.
func (t *Table) walk(from *chain, p place, lives map[string]placeSet) {
	todo := []*chain{from}
	for len(todo) > 0 {
		c := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if c == nil || c.want == nil || lives[c.name].has(p) || checkName(c.name, MaxName) != nil {
			continue
		}
		here := lives[c.name]
		here.add(p)
		lives[c.name] = here
		if t.refused[c.name] != nil {
			continue // it stands closed and leads nowhere
		}
		for _, name := range c.leads[p.family()] {
			todo = append(todo, t.chains[name])
		}
	}
}
