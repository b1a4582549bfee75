package tables

// Asks returns the chain that the rule asks about whatever comes to the rule, or
// "". Such a rule jumps, and looks at nothing of the packet: marks do not count,
// which chains set for one another. A rule that divides packets among chains, by
// their addresses or interfaces, asks none.
func (r Rule) Asks() string {
	jump, ok := r.Action.(Jump)
	if !ok {
		return ""
	}
	for _, m := range r.Matches {
		if _, ok := m.(MatchMark); !ok {
			return ""
		}
	}
	return jump.Chain
}

// Asked returns the chains that a chain asks, directly or by way of others, each
// once. It finds chains by their names; what it does not find is not among them.
//
// If one of them stands closed, the chain has to as well. It would else let
// through what those before the closed one do, and nothing of what those behind it
// do: the order of policies would decide, which is nobody's wish. A base chain is
// no such chain, since it sees what concerns none of them.
func (c *Chain) Asked(find func(name string) *Chain) []*Chain {
	var out []*Chain
	seen := map[string]bool{c.Name: true}
	for todo := []*Chain{c}; len(todo) > 0; todo = todo[1:] {
		for _, r := range todo[0].Rules {
			name := r.Asks()
			if name == "" || seen[name] {
				continue
			}
			seen[name] = true
			if to := find(name); to != nil {
				out = append(out, to)
				todo = append(todo, to)
			}
		}
	}
	return out
}
