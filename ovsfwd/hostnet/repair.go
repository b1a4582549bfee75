package hostnet

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/tables"
)

// Result is the result of one Apply.
type Result struct {
	// Writes counts the changes of the kernel's state.
	Writes int
	// Repaired are the repaired foreign changes.
	Repaired []tables.Repair
}

// Kinds of objects in a Repair.
const (
	kindLink      = "link"
	kindAddress   = "address"
	kindRoute     = "route"
	kindRule      = "rule"
	kindNeighbour = "neighbour"
	kindSysctl    = "sysctl"
)

// Kinds returns the kinds of objects that a Reconciler repairs.
func Kinds() []string {
	return []string{kindLink, kindAddress, kindRoute, kindRule, kindNeighbour, kindSysctl}
}

// missing is the text of a Repair for a missing object.
const missing = "missing"

// repairLog collects the repairs of one pass.
type repairLog struct {
	noticed time.Time
	// link is the change of the gateway port. With the port, the kernel removes addresses,
	// routes and neighbours; with counts them by kind.
	link string
	with map[string]int
	// own is set after this pass has removed an address of its own. With the last one of a family, the kernel removes the
	// routes and neighbours of the port.
	own bool
	all []tables.Repair
}

// add notes a repaired foreign change.
func (l *repairLog) add(kind, name, what string) {
	if l.link != "" && what == missing {
		l.with[kind]++
		return
	}
	if l.own && what == missing && (kind == kindRoute || kind == kindNeighbour) {
		return
	}
	l.all = append(l.all, tables.Repair{Object: kind, Name: name, What: what, Noticed: l.noticed})
}

// repairs returns all of them, the gateway port first.
func (l *repairLog) repairs(gateway string) []tables.Repair {
	if l.link == "" {
		return l.all
	}
	what := l.link
	if len(l.with) > 0 {
		var lost []string
		for _, kind := range slices.Sorted(maps.Keys(l.with)) {
			lost = append(lost, fmt.Sprintf("%d of kind %s", l.with[kind], kind))
		}
		what += "; missing with it: " + strings.Join(lost, ", ")
	}
	return slices.Insert(l.all, 0, tables.Repair{Object: kindLink, Name: gateway, What: what, Noticed: l.noticed})
}
