package worker

import (
	"fmt"
	"strings"

	"github.com/felixlike/felixlike/bench/workload"
	"github.com/felixlike/felixlike/felixlike"
)

// Backend is a backend that can be measured.
type Backend struct {
	Name string
	// New makes it for the workload's node, as an agent would by default.
	New func() felixlike.Backend
	// Tools are the kernel's own for what the backend programs, in the order
	// in which they load.
	Tools []Tool
}

// Tool saves kernel state to standard output, and loads it from standard
// input. Version prints what is used.
type Tool struct{ Save, Load, Version []string }

// String returns the command that loads.
func (t Tool) String() string { return strings.Join(t.Load, " ") }

// Backends returns the backends that can be measured.
func Backends() []Backend {
	return []Backend{
		{
			Name: "nftables",
			New:  func() felixlike.Backend { return felixlike.NewNFTables(workload.Node, true) },
			Tools: []Tool{{
				Save: []string{"nft", "list", "ruleset"}, Load: []string{"nft", "-f", "-"},
				Version: []string{"nft", "--version"},
			}},
		},
	}
}

// FindBackend returns the backend of that name.
func FindBackend(name string) (Backend, error) {
	var names []string
	for _, b := range Backends() {
		if b.Name == name {
			return b, nil
		}
		names = append(names, b.Name)
	}
	return Backend{}, fmt.Errorf("backend %q: must be one of %s", name, strings.Join(names, ", "))
}
