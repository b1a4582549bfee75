package nftables

import "github.com/felixlike/felixlike/tables/nftables/kernel"

// maxBatch bounds the rules, elements and other objects of one transaction. The kernel was seen to take
// 200,000 rules in one batch. None of our objects takes more than 1 kB of request, so maxBatch objects stay
// below the send buffer of the socket (kernel.SocketBuffer).
const maxBatch = 100_000

// chunks divides operations into as few transactions as the limit allows. It never divides a group, and keeps
// the order. The tail is one group, so base chains, and deletions of objects that they no longer need, come
// last and in one transaction.
func chunks(head []group, tail group, limit int) [][]kernel.Op {
	var out [][]kernel.Op
	groups, left := append(head[:len(head):len(head)], tail), 0
	for _, g := range groups {
		left += len(g)
	}
	current := make([]kernel.Op, 0, min(left, limit))
	weight := 0
	for _, g := range groups {
		w := g.weight()
		if w == 0 {
			continue
		}
		if weight > 0 && weight+w > limit {
			out = append(out, current)
			current, weight = make([]kernel.Op, 0, min(left, limit)), 0
		}
		current = append(current, g...)
		weight, left = weight+w, left-len(g)
	}
	if len(current) > 0 {
		out = append(out, current)
	}
	return out
}

// group is operations that must be in one transaction.
type group []kernel.Op

func (g group) weight() int {
	n := 0
	for i := range g {
		n += g[i].Weight()
	}
	return n
}
