package prove

import "slices"

// diagrams are binary decision diagrams over numbered variables, in the order of their numbers, each of which is there once (Bryant 1986, with
// the complement edges of Brace, Rudell and Bryant 1990). Nothing is freed: a proof is short.
type diagrams struct {
	nodes []diagram
	// places has the node of each hash, plus one.
	places []uint32
	// cache has results of and, the last of each hash.
	cache []result
	// full says that there were too many nodes: no set is right any more.
	full bool
	// ended, if it is set, returns an error once nobody waits for the proof. It is called for some nodes only.
	ended func() error
}

// packets are a set of packets: a node, times two, plus one for its complement. Equal sets are equal numbers.
type packets uint32

type diagram struct {
	variable  int32
	low, high packets
}

type result struct{ a, b, is packets }

const (
	everything packets = 0
	nothing    packets = 1
	// noVariable is the variable of the node everything. It comes after all others.
	noVariable = 1 << 30
	// maxNodes bounds the memory of a proof of both families to about 1 GB.
	maxNodes = 1 << 24
	// askedEvery is how many nodes are made before ended is asked.
	askedEvery = 1 << 12
)

func newDiagrams() *diagrams {
	return &diagrams{nodes: []diagram{{variable: noVariable}}, places: make([]uint32, 1<<12), cache: make([]result, 1<<16)}
}

func hashOf(a, b, c uint32) uint32 {
	h := uint64(a)*0x9e3779b97f4a7c15 ^ uint64(b)*0xc2b2ae3d27d4eb4f ^ uint64(c)*0x165667b19e3779f9
	return uint32(h >> 29)
}

// node returns the packets of low that lack a variable, and those of high that have it.
func (d *diagrams) node(variable int32, low, high packets) packets {
	if low == high {
		return low
	}
	if high&1 != 0 { // so that each set has one form
		return d.node(variable, low^1, high^1) ^ 1
	}
	mask := uint32(len(d.places) - 1)
	at := hashOf(uint32(variable), uint32(low), uint32(high)) & mask
	for ; d.places[at] != 0; at = (at + 1) & mask {
		if n := d.places[at] - 1; d.nodes[n] == (diagram{variable, low, high}) {
			return packets(n) << 1
		}
	}
	if len(d.nodes) == maxNodes || len(d.nodes)%askedEvery == 0 && d.ended != nil && d.ended() != nil {
		d.full = true
		return nothing
	}
	d.nodes = append(d.nodes, diagram{variable, low, high})
	n := uint32(len(d.nodes))
	d.places[at] = n
	if 2*len(d.nodes) > len(d.places) {
		d.grow()
	}
	return packets(n-1) << 1
}

func (d *diagrams) grow() {
	d.places = make([]uint32, 2*len(d.places))
	mask := uint32(len(d.places) - 1)
	for i, n := range d.nodes[1:] {
		at := hashOf(uint32(n.variable), uint32(n.low), uint32(n.high)) & mask
		for d.places[at] != 0 {
			at = (at + 1) & mask
		}
		d.places[at] = uint32(i) + 2
	}
	if len(d.cache) < len(d.places) && len(d.cache) < 1<<22 {
		d.cache = make([]result, len(d.places))
	}
}

func (d *diagrams) variable(i int) packets { return d.node(int32(i), nothing, everything) }

func (d *diagrams) not(p packets) packets { return p ^ 1 }

func (d *diagrams) or(a, b packets) packets { return d.and(a^1, b^1) ^ 1 }

func (d *diagrams) without(a, b packets) packets { return d.and(a, b^1) }

func (d *diagrams) when(holds bool) packets {
	if holds {
		return everything
	}
	return nothing
}

// parts returns the halves of a set by a variable.
func (d *diagrams) parts(p packets, variable int32) (low, high packets) {
	n := &d.nodes[p>>1]
	if n.variable != variable {
		return p, p
	}
	return n.low ^ p&1, n.high ^ p&1
}

func (d *diagrams) and(a, b packets) packets {
	switch {
	case a == nothing || b == nothing || a == b^1:
		return nothing
	case a == everything || a == b:
		return b
	case b == everything:
		return a
	case a > b:
		a, b = b, a
	}
	at := hashOf(uint32(a), uint32(b), 0) & uint32(len(d.cache)-1)
	if r := d.cache[at]; r.a == a && r.b == b {
		return r.is
	}
	v := min(d.nodes[a>>1].variable, d.nodes[b>>1].variable)
	al, ah := d.parts(a, v)
	bl, bh := d.parts(b, v)
	is := d.node(v, d.and(al, bl), d.and(ah, bh))
	at = hashOf(uint32(a), uint32(b), 0) & uint32(len(d.cache)-1) // it may have grown
	d.cache[at] = result{a, b, is}
	return is
}

// choice returns the packets of yes that have a variable, and those of no that lack it.
func (d *diagrams) choice(variable int, yes, no packets) packets {
	v := d.variable(variable)
	return d.or(d.and(v, yes), d.without(no, v))
}

// whatever returns the packets that are in a set for some value of the variables, which are sorted.
func (d *diagrams) whatever(variables []int, p packets) packets {
	known := map[packets]packets{}
	var walk func(p packets) packets
	walk = func(p packets) packets {
		n := d.nodes[p>>1]
		if n.variable == noVariable {
			return p
		}
		if is, has := known[p]; has {
			return is
		}
		low, high := walk(n.low^p&1), walk(n.high^p&1)
		is := nothing
		if _, gone := slices.BinarySearch(variables, int(n.variable)); gone {
			is = d.or(low, high)
		} else {
			is = d.node(n.variable, low, high)
		}
		known[p] = is
		return is
	}
	return walk(p)
}

// one returns variables that packets of a set have, which is not empty; all others are those that they lack.
func (d *diagrams) one(p packets) (all []int) {
	for p != everything {
		n := d.nodes[p>>1]
		if low := n.low ^ p&1; low != nothing {
			p = low
			continue
		}
		all, p = append(all, int(n.variable)), n.high^p&1
	}
	return all
}
