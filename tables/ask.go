package tables

// Asks returns the chain that the rule jumps to for every packet, or "". Matches of marks do not count as a
// condition: chains set them for one another. A rule that divides packets among chains, by their addresses or
// interfaces, asks none.
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

// Asked returns the chains that a chain asks, directly or through others, each once. It finds chains by their
// names, and leaves out those that it does not find.
//
// If one of them is closed, the chain has to be closed, too. Otherwise it would allow the packets that chains
// before the closed one allow, but not those that chains behind it allow: the order of policies would decide.
// A base chain asks none, since it also sees packets that concern none of these chains.
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
