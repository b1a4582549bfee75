package nftables

import (
	"reflect"

	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables/kernel"
)

// modulesChain is the chain of rules that the kernel checks and does not keep.
const modulesChain = "modules"

// moduleOps returns operations with which Check has the kernel load the modules that the transactions need. A kernel that
// lacks one undoes what it has done of the transaction, loads it, and begins again (nfnetlink_rcv_batch), once for each module.
// With one rule for each kind of match and action this costs next to nothing. The kernel only checks these rules. What it
// refuses there, a jump to a chain that does not exist for example, it judges again in the transactions.
func moduleOps(batches [][]kernel.Op) []kernel.Op {
	all := []kernel.Op{{Kind: kernel.AddTable}, {Kind: kernel.AddChain, Name: modulesChain}}
	seen := map[reflect.Type]bool{}
	add := func(part any, r tables.Rule) {
		if kind := reflect.TypeOf(part); !seen[kind] {
			seen[kind] = true
			all = append(all, kernel.Op{Kind: kernel.AddRule, Name: modulesChain, Rule: &r})
		}
	}
	for _, ops := range batches {
		for i := range ops {
			switch o := &ops[i]; {
			case o.Kind == kernel.AddChain && o.Hook != nil && o.Hook.Type == tables.HookNAT && !seen[reflect.TypeOf(o.Hook)]:
				seen[reflect.TypeOf(o.Hook)] = true
				all = append(all, kernel.Op{Kind: kernel.AddChain, Name: modulesChain + "-nat", Hook: o.Hook})
			case o.Kind == kernel.AddRule:
				for _, m := range o.Rule.Matches {
					add(m, tables.Rule{Matches: []tables.Match{m}, Action: tables.Accept{}})
				}
				add(o.Rule.Action, tables.Rule{Action: o.Rule.Action})
			}
		}
	}
	return all
}
