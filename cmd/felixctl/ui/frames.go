package ui

import (
	"net/netip"

	"go4.org/netipx"
)

// frameClass is the class of a cell with packets that a backend would treat in another way than what is programmed now.
const frameClass = "f"

// frames returns the pairs of ends between which a node's proof has found a difference.
func (m *matrix) frames(nodes []proved) map[[2]int]bool {
	pods := map[netip.Addr]int{}
	for i, e := range m.ends {
		for _, p := range e.Pods() {
			for _, ip := range p.Status.PodIPs {
				if a, err := netip.ParseAddr(ip.IP); err == nil {
					pods[a] = i
				}
			}
		}
	}
	ends := func(ranges []netipx.IPRange) map[int]bool {
		found := map[int]bool{}
		var rest netipx.IPSetBuilder
		for _, r := range ranges {
			rest.AddRange(r)
			for a, i := range pods {
				if r.Contains(a) {
					found[i] = true
				}
			}
		}
		for _, a := range m.inside {
			rest.Remove(a)
		}
		if s, err := rest.IPSet(); err != nil || len(s.Ranges()) > 0 {
			for i, e := range m.ends {
				if len(e.Pods()) == 0 {
					found[i] = true
				}
			}
		}
		return found
	}
	pairs := map[[2]int]bool{}
	for _, n := range nodes {
		for _, d := range n.Differences {
			for _, r := range d.Regions {
				to := ends(r.Destinations)
				for a := range ends(r.Sources) {
					for b := range to {
						pairs[[2]int{a, b}] = true
					}
				}
			}
		}
	}
	return pairs
}

// incomplete counts the nodes that do not have all their packets compared, or named.
func (p proofs) incomplete() (n int) {
	for _, one := range p.Nodes {
		more := false
		for _, d := range one.Differences {
			more = more || d.MoreRegions
		}
		if one.Fault != "" || more || !one.Equal && len(one.Differences) == 0 || len(one.NotProved) > 0 {
			n++
		}
	}
	return n
}
