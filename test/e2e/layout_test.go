package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/test/lab"
)

// TestLayoutOfLiveNode restarts an agent with one layout of nftables after the other under traffic: streams go on, new
// connections open, and what policy denies never passes.
func TestLayoutOfLiveNode(t *testing.T) {
	l := newLabWith(t, lab.Config{Backend: config.NFTables})
	set(t, l, state(t, threeNodes, onlyFromC+"---"+manyRules()))
	node := l.Node("node1")
	tr := startTraffic(t, l, [][2]string{{"c", "a"}, {"a", "b"}}, [][2]string{{"b", "a"}, {"d", "a"}, {"c", "b"}})
	for _, layout := range []string{config.LayoutMaps, config.LayoutRules, config.LayoutAuto, config.LayoutRules} {
		if err := node.StopAgent(); err != nil {
			t.Fatal(err)
		}
		node.Settings().NFTablesLayout = layout
		if err := node.StartAgent(); err != nil {
			t.Fatal(err)
		}
		if err := node.Sync(t.Context(), pod("a"), pod("b")); err != nil {
			t.Fatal(err)
		}
		for _, in := range []struct {
			pod  string
			want bool
		}{{"a", layout == config.LayoutMaps}, {"b", layout != config.LayoutRules}} {
			name, address := rules.ListMap(model.Ingress, model.IPv4), l.Pod(pod(in.pod)).Address(model.IPv4).String()
			if got := strings.Contains(nft(t, node, "list", "table", "inet", "felixlike"), "map "+name+" {") &&
				strings.Contains(nft(t, node, "list", "map", "inet", "felixlike", name), address+" : "); got != in.want {
				t.Errorf("layout %s: pod %s is in maps: %v, want %v", layout, in.pod, got, in.want)
			}
		}
	}
	tr.stop(t)
}

// manyRules isolates x/b but for x/a, by more rules than the layout auto leaves in chains. None has more ports than grants express.
func manyRules() string {
	var b strings.Builder
	b.WriteString("\n{kind: NetworkPolicy, metadata: {namespace: x, name: many}, spec: {podSelector: {matchLabels: {pod: b}}, ingress: [")
	for first := 80; first < 80+2*config.AutoLayoutRules; first += 32 {
		b.WriteString("{from: [{podSelector: {matchLabels: {pod: a}}}], ports: [")
		for port := range 16 {
			fmt.Fprintf(&b, "{port: %d},", first+2*port) // ports in a row are one rule
		}
		b.WriteString("]},")
	}
	b.WriteString("]}}\n")
	return b.String()
}
