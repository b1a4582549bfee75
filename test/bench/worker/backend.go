package worker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/felixlike/felixlike/felixlike/driver"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/iptables"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// NFTablesMaps is the name of backend nftables with the layout maps.
const NFTablesMaps = config.NFTables + "-" + config.LayoutMaps

// Backend is a backend that can be measured.
type Backend struct {
	// Name is one of config.BackendsInForce, or NFTablesMaps.
	Name string
	// New makes it for the workload's node, as an agent would by default.
	New func(Switch) (backend.Backend, error)
	// NeedsSwitch reports whether it programs an Open vSwitch.
	NeedsSwitch bool
	// Tools are the kernel's or the switch's own tools for the backend's state,
	// in the order in which they load. The argument Socket stands for that of
	// the bridge.
	Tools []Tool
	// Foreign are changes that another program makes. It is nil if
	// the backend does not notice them when they happen. The renderer is that
	// of the backend.
	Foreign func(workload.Workload, *rules.Renderer, Switch) []Foreign
	// CheckEvery is the default interval of an agent's full checks for such changes;
	// zero if it is notified of them.
	CheckEvery time.Duration
	// Sparing divides the number of changes to rules: one for a
	// backend that programs them itself, more if each starts a program over a whole
	// table.
	Sparing int
}

// Foreign is a kind of change that another program makes.
type Foreign struct {
	Case Case
	// Once reports that the change is too expensive for a series.
	Once bool
	// Change makes the i-th change of the kind, and returns the moment before
	// the request to the kernel.
	Change func(i int) (time.Time, error)
}

// Tool saves kernel state to standard output, and loads it from standard
// input. Version prints its version.
type Tool struct{ Save, Load, Version []string }

// String returns the command that loads.
func (t Tool) String() string { return strings.Join(t.Load, " ") }

// Backends returns the backends that can be measured.
func Backends() []Backend {
	return []Backend{
		{
			Name:  config.NFTables,
			New:   func(Switch) (backend.Backend, error) { return backend.NewNFTables(workload.Node, true), nil },
			Tools: []Tool{nftTool()}, Foreign: foreignNFT, Sparing: 1,
		},
		{
			Name: NFTablesMaps,
			New: func(Switch) (backend.Backend, error) {
				return backend.New(context.Background(), backend.Config{
					Name: config.NFTables, Layout: config.LayoutMaps, Node: workload.Node, Masquerade: true,
				})
			},
			Tools: []Tool{nftTool()}, Foreign: foreignMaps, Sparing: 1,
		},
		xtables(iptables.Legacy),
		xtables(iptables.NFT),
		{
			Name: config.OpenFlow, NeedsSwitch: true, Foreign: foreignFlows, Sparing: 1,
			New: func(s Switch) (backend.Backend, error) {
				return backend.New(context.Background(), backend.Config{
					Name: config.OpenFlow, Node: workload.Node, Masquerade: true, Switch: backend.Switch{
						RunDir: s.Dir, Bridge: Bridge,
						Node: pipeline.Node{
							Mode: pipeline.Full, GatewayPort: ovsdb.GatewayOFPort, TunnelPort: ovsdb.TunnelOFPort,
							GatewayMAC: ovsdb.GatewayMAC(workload.Node), Userspace: true,
						},
					},
				})
			},
			Tools: []Tool{{
				// Without the meters that pods have: ovs-ofctl adds one a call.
				Save:    []string{"bash", "-o", "pipefail", "-c", `ovs-ofctl -O OpenFlow15 --no-stats dump-flows "$0" | sed 's/meter:[0-9]*,//'`, Socket},
				Load:    []string{"ovs-ofctl", "-O", "OpenFlow15", "--bundle", "add-flows", Socket, "-"},
				Version: []string{"ovs-vswitchd", "--version"},
			}, nftTool()},
		},
	}
}

// Socket stands for the bridge's management socket in the command of a Tool.
const Socket = "BRIDGE"

func nftTool() Tool {
	return Tool{
		Save: []string{"nft", "list", "ruleset"}, Load: []string{"nft", "-f", "-"}, Version: []string{"nft", "--version"},
	}
}

// xtables is the iptables backend in one of its variants. The kernel's ipsets
// must be there before the rules that name them. The tool keeps what others have in the
// tables, as the driver does: without --noflush iptables-nft-restore takes half of the time.
func xtables(v iptables.Variant) Backend {
	b := Backend{
		Name: config.IPTables + "-" + v.String(),
		New:  func(Switch) (backend.Backend, error) { return backend.NewIPTables(workload.Node, true, v), nil },
		Tools: []Tool{{
			Save: []string{"ipset", "save"}, Load: []string{"ipset", "restore"}, Version: []string{"ipset", "--version"},
		}},
		CheckEvery: driver.DefaultTiming().Resync, Sparing: 10,
	}
	for _, program := range []string{"iptables", "ip6tables"} {
		program += "-" + v.String()
		b.Tools = append(b.Tools, Tool{
			Save: []string{program + "-save"}, Load: []string{program + "-restore", "--noflush"}, Version: []string{program, "--version"},
		})
	}
	return b
}

// FindBackend returns the backend of that name.
func FindBackend(name string) (Backend, error) {
	for _, b := range Backends() {
		if b.Name == name {
			return b, nil
		}
	}
	return Backend{}, fmt.Errorf("backend %q: must be one of %s", name, strings.Join(BackendNames(), ", "))
}

// BackendNames lists the names that FindBackend takes.
func BackendNames() []string {
	var names []string
	for _, b := range Backends() {
		names = append(names, b.Name)
	}
	return names
}
