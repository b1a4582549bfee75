package ui

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"go4.org/netipx"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// frameClass is the class of a cell where a backend would give a packet another verdict than the programmed state.
const frameClass = "f"

// enclose notes which addresses are not outside: addresses of nodes and pods, and the prefixes of pods and Services, in which a pod may be
// younger than the objects.
func (m *matrix) enclose(o control.Objects, services []netip.Prefix) {
	var all netipx.IPSetBuilder
	add := func(text string) {
		if a, err := netip.ParseAddr(text); err == nil { // a node's host name is none
			all.Add(a.WithZone(""))
		}
	}
	for _, p := range o.Pods {
		for _, ip := range p.Status.PodIPs {
			add(ip.IP)
		}
	}
	for _, n := range o.Nodes {
		for _, a := range n.Status.Addresses {
			add(a.Address)
		}
	}
	for _, p := range slices.Concat(preview.PodPrefixes(o.Nodes), services) {
		all.AddPrefix(p)
	}
	var err error
	m.inside, err = all.IPSet()
	m.bounded = err == nil && !slices.ContainsFunc(m.world.Families(), func(f model.Family) bool {
		lacks := func(all []netip.Prefix) bool {
			return !slices.ContainsFunc(all, func(p netip.Prefix) bool { return model.FamilyOf(p.Addr()) == f })
		}
		return lacks(services) || slices.ContainsFunc(o.Nodes, func(n *corev1.Node) bool { return lacks(preview.PodPrefixes([]*corev1.Node{n})) })
	})
}

// spots returns the ends with addresses of some ranges, and reports whether it is known that those outside belong to nobody inside.
func (m *matrix) spots(ranges []netipx.IPRange) (found map[int]bool, known bool) {
	found, known = map[int]bool{}, true
	var rest netipx.IPSetBuilder
	for _, r := range ranges {
		rest.AddRange(r)
		for a, i := range m.byAddress {
			if r.Contains(a) {
				found[i] = true
			}
		}
	}
	rest.RemoveSet(m.inside)
	if s, err := rest.IPSet(); err != nil || len(s.Ranges()) > 0 {
		known = err == nil && m.bounded
		for i, e := range m.ends {
			if len(e.Pods()) == 0 {
				found[i] = true
			}
		}
	}
	return found, known
}

// frame adds the pairs of ends between which a node's proof has found a difference. It reports whether the page shows a pair of each region:
// nodes, Services and unknown pods have no cell.
func (m *matrix) frame(n proved, pairs map[[2]int]bool, shown func(from, to int) bool) bool {
	all := true
	for _, d := range n.Differences {
		for _, r := range d.Regions {
			from, knownFrom := m.spots(r.Sources)
			to, knownTo := m.spots(r.Destinations)
			visible := false
			for a := range from {
				for b := range to {
					pairs[[2]int{a, b}] = true
					visible = visible || shown(a, b)
				}
			}
			all = all && visible && knownFrom && knownTo
		}
	}
	return all
}

// incomplete reports that not all packets of the node are compared, or named.
func (p proved) incomplete() bool {
	for _, d := range p.Differences {
		if d.MoreRegions || len(d.Regions) == 0 {
			return true
		}
	}
	return p.Fault != "" || !p.Equal && len(p.Differences) == 0 || len(p.NotProved) > 0
}
