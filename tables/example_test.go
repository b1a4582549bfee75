package tables_test

import (
	"fmt"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/edit"
)

func allow(port uint16) tables.Rule {
	return tables.Rule{
		Matches: []tables.Match{tables.MatchProtocol{Protocol: model.TCP}, tables.MatchDestinationPorts{First: port, Last: port}},
		Action:  tables.Accept{}, Comment: fmt.Sprintf("allow %d", port),
	}
}

// A driver keeps the hashes of the rules that the kernel has, and writes only the difference.
func ExampleChain_Hashes() {
	have := tables.Chain{Name: "c", Rules: []tables.Rule{allow(80), allow(443), allow(8080)}}
	want := tables.Chain{Name: "c", Rules: []tables.Rule{allow(80), allow(8080), allow(9090)}}
	script := edit.Minimal(have.Hashes(), want.Hashes())
	for _, old := range script.Deletes {
		fmt.Println("delete", have.Rules[old])
	}
	for i, old := range script.Kept {
		if old < 0 {
			fmt.Println("insert", want.Rules[i])
		}
	}
	// Output:
	// delete proto tcp dport 443 accept
	// insert proto tcp dport 9090 accept
}

// A driver that cannot program the chain of a policy closes it, and each chain that asks it: otherwise the order of the policies would decide.
func ExampleChain_Asked() {
	chains := map[string]*tables.Chain{
		"policy-a": {Name: "policy-a", Rules: []tables.Rule{allow(80)}},
		"policy-b": {Name: "policy-b", Rules: []tables.Rule{allow(443)}},
	}
	pods := tables.Chain{Name: "pods", Rules: []tables.Rule{
		{Action: tables.Jump{Chain: "policy-a"}}, {Action: tables.Jump{Chain: "policy-b"}}, {Action: tables.Drop{}},
	}}
	for _, asked := range pods.Asked(func(name string) *tables.Chain { return chains[name] }) {
		fmt.Println(asked.Name)
	}
	// Output:
	// policy-a
	// policy-b
}

// The comment of a rule in the kernel has its hash, by which a restarted agent knows it again.
func ExampleRule_KernelComment() {
	comment := allow(80).KernelComment()
	fmt.Println(comment)
	fmt.Println(tables.HashInComment(comment) == allow(80).Hash())
	// Output:
	// flx:tnHhkqc8pz0p1AFYWp0tSd allow 80
	// true
}
