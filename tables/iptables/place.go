package iptables

import (
	"fmt"
	"os"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// kernelTable is a table of iptables, in the order in which they are
// programmed: tables with early drops come first.
type kernelTable uint8

const (
	tableRaw kernelTable = iota
	tableMangle
	tableFilter
	tableNAT
	kernelTables
)

// String returns the name that the tools use.
func (k kernelTable) String() string {
	switch k {
	case tableRaw:
		return "raw"
	case tableMangle:
		return "mangle"
	case tableFilter:
		return "filter"
	case tableNAT:
		return "nat"
	}
	return fmt.Sprintf("table(%d)", uint8(k))
}

// parseKernelTable returns the table of that name, if it is one that we use.
func parseKernelTable(name string) (kernelTable, bool) {
	for k := range kernelTables {
		if k.String() == name {
			return k, true
		}
	}
	return 0, false
}

// place is one kernel table of one family: chains live in places, and each is
// programmed as a whole or not at all.
type place uint8

// places is the number of places.
const places = 2 * place(kernelTables)

func placeOf(f model.Family, k kernelTable) place {
	if f == model.IPv6 {
		return place(kernelTables + k)
	}
	return place(k)
}

// placesOf lists the places of a family in the order of their programming.
func placesOf(f model.Family) []place {
	out := make([]place, 0, kernelTables)
	for k := range kernelTables {
		out = append(out, placeOf(f, k))
	}
	return out
}

func (p place) table() kernelTable { return kernelTable(p) % kernelTables }

func (p place) family() model.Family {
	if kernelTable(p) < kernelTables {
		return model.IPv4
	}
	return model.IPv6
}

// String names the place for people, as "IPv4 filter".
func (p place) String() string { return fmt.Sprintf("IPv%s %s", p.family(), p.table()) }

// placeSet is a set of places.
type placeSet uint8

func (s placeSet) has(p place) bool { return s&(1<<p) != 0 }

func (s *placeSet) add(p place) { *s |= 1 << p }

func (s *placeSet) remove(p place) { *s &^= 1 << p }

// entry is where a base chain is entered: a chain of the kernel's own.
type entry struct {
	table kernelTable
	chain string
}

// entryOf returns the kernel's chain that is at the hook with the priority.
// There are no others: iptables has the kernel's tables only.
func entryOf(h tables.Hook) (entry, error) {
	switch h {
	case tables.Hook{Type: tables.HookFilter, Point: tables.HookPrerouting, Priority: -300}:
		return entry{tableRaw, "PREROUTING"}, nil
	case tables.Hook{Type: tables.HookFilter, Point: tables.HookPrerouting, Priority: -150}:
		return entry{tableMangle, "PREROUTING"}, nil
	case tables.Hook{Type: tables.HookFilter, Point: tables.HookForward, Priority: -150}:
		return entry{tableMangle, "FORWARD"}, nil
	case tables.Hook{Type: tables.HookFilter, Point: tables.HookInput, Priority: -150}:
		return entry{tableMangle, "INPUT"}, nil
	case tables.Hook{Type: tables.HookFilter, Point: tables.HookForward, Priority: 0}:
		return entry{tableFilter, "FORWARD"}, nil
	case tables.Hook{Type: tables.HookFilter, Point: tables.HookPostrouting, Priority: -150},
		// Before the table's own priority is before the rules of others in it.
		tables.Hook{Type: tables.HookFilter, Point: tables.HookPostrouting, Priority: -151}:
		return entry{tableMangle, "POSTROUTING"}, nil
	case tables.Hook{Type: tables.HookNAT, Point: tables.HookPostrouting, Priority: 100},
		tables.Hook{Type: tables.HookNAT, Point: tables.HookPostrouting, Priority: 99}:
		return entry{tableNAT, "POSTROUTING"}, nil
	}
	return entry{}, fmt.Errorf("iptables has no table for a chain of type %s at hook %s with priority %d", h.Type, h.Point, h.Priority)
}

// kernelFamilies returns the families of the kernel: one booted with ipv6.disable=1
// has no tables for IPv6, and no such packets.
func kernelFamilies() []model.Family {
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		return []model.Family{model.IPv4}
	}
	return model.Families()
}
