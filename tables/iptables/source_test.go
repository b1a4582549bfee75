package iptables

import (
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// A source is kept by ending the table, which is known again after a restart.
func TestKeepSource(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		h := newHost(t, v)
		load := func(table *Table) {
			table.UpdateChain(tables.Chain{
				Name: "postrouting", Hook: &tables.Hook{Type: tables.HookNAT, Point: tables.HookPostrouting, Priority: 99},
				Rules: []tables.Rule{
					rule(tables.KeepSource{Family: model.IPv4}, "", device(tables.Destination, "flx-gw0", false), prefix(tables.Source, "10.10.0.0/24", false)),
					rule(tables.KeepSource{Family: model.IPv6}, ""),
				},
			})
		}
		table := h.open(t)
		load(table)
		apply(t, table)
		wantSilent(t, table)
		restarted := h.open(t)
		load(restarted)
		if r := apply(t, restarted); r.Messages != 0 || r.Rules != 4 { // with those that lead there
			t.Errorf("after a restart: %+v\n%s", r, h.state(t))
		}
	})
}
