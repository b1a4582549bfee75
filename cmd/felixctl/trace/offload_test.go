package trace

import (
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/truthtable"
)

// TestOffload: with offload, packets of allowed connections between pods skip the host, within a
// node and across the tunnel. All others go there, and are judged.
func TestOffload(t *testing.T) {
	step := readSteps(t, "../../../test/truthtable/testdata/hosts.jsonl")[0]
	for _, backend := range []string{config.NFTables, config.IPTablesLegacy} {
		for _, family := range model.Families() {
			o := step.Objects(family)
			c := &oracle.Cluster{Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods}
			var sites []*Site
			for _, n := range c.Nodes {
				sites = append(sites, siteWith(t, c, n.Name, &control.Model{
					Node: n.Name, Backend: backend, Settings: control.Settings{Bridge: "br-int", Masquerade: true, Offload: true},
				}))
			}
			for _, to := range []string{"x/b", "x/c"} {
				for _, conn := range []Conn{New, Allowed, Answer, Reopened, Unjudged} {
					p := packetOf(t, &step, truthtable.Probe{From: "x/a", To: to, Protocol: "TCP", Port: 80}, family)
					p.Conn = conn
					path, err := Follow(p, sites, nil)
					if err != nil {
						t.Fatal(err)
					}
					host := slices.ContainsFunc(path.Steps, func(s Step) bool { return s.Place != "tunnel" && !strings.HasPrefix(s.Place, "bridge ") })
					if want := conn != Allowed && conn != Answer; path.Fate != ToPod || host != want {
						t.Errorf("%s, %s, %s: %s, through the host %v, want %v\n%s", backend, p, conn, path.Fate, host, want, stepsText(path))
					}
				}
			}
		}
	}
}
