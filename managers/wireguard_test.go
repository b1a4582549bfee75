package managers

import (
	"fmt"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/hostnet"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/wireguard"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

type lastDevice struct{ wireguard.State }

func (l *lastDevice) SetState(s wireguard.State) { l.State = s }

// peers lists the first byte of each key, the endpoint and the sources.
func (l *lastDevice) peers() string {
	var all []string
	for _, p := range l.Peers {
		all = append(all, fmt.Sprintf("%d %s %v", p.Key[0], p.Endpoint, p.Sources))
	}
	return strings.Join(all, "; ")
}

// keyed gives the node updates keys by the node's number; "" takes the key away.
func keyed(updates []model.Update, keys map[string]byte) []model.Update {
	var all []model.Update
	for _, u := range updates {
		if n, ok := u.(model.NodeUpdate); ok {
			node := *n.Node
			node.PublicKey = model.PublicKey{keys[node.Name]}
			u = model.NodeUpdate{Node: &node}
		}
		all = append(all, u)
	}
	return all
}

// TestEncryptedOverIPv6: nodes without IPv4 send encrypted packets to each other's IPv6 address, and none to a node with IPv4.
func TestEncryptedOverIPv6(t *testing.T) {
	device := &lastDevice{}
	give(NewWireGuardManager("n1", model.PublicKey{1}, 51820, device), keyed([]model.Update{
		model.NodeUpdate{Node: routedNode("n1", 1, "fd00:50::1")},
		model.NodeUpdate{Node: routedNode("n2", 2, "fd00:50::2")},
		model.NodeUpdate{Node: routedNode("n3", 3, "192.168.50.3", "fd00:50::3")},
	}, map[string]byte{"n1": 1, "n2": 2, "n3": 3})...)
	if got, want := device.peers(), "2 [fd00:50::2]:51820 [10.10.2.0/24 fd00:10:0:2::/64 fd00:50::2/128]"; got != want {
		t.Errorf("peers %s, want %s", got, want)
	}
}

// TestEncryptedWays: a peer with a key of its own is reached by the device alone, in both families. One without a key, or with
// the key of another node, is not reached at all, and is named.
func TestEncryptedWays(t *testing.T) {
	for _, c := range []struct {
		name      string
		keys      map[string]byte
		encrypted string
		problems  []string
	}{
		{"all", map[string]byte{"n1": 1, "n2": 2, "n3": 3, "n4": 4}, "n2 n3 n4", nil},
		{"a peer without", map[string]byte{"n1": 1, "n2": 2, "n4": 4}, "n2 n4", []string{"n3"}},
		{"two with one", map[string]byte{"n1": 1, "n2": 2, "n3": 2, "n4": 4}, "n4", []string{"nodes n2, n3", "nodes n2, n3"}},
		{"a peer with this node's", map[string]byte{"n1": 1, "n2": 1, "n3": 3, "n4": 4}, "n3 n4", []string{"nodes n1, n2"}},
		{"this node without", map[string]byte{"n2": 2, "n3": 3, "n4": 4}, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			host, flows, device := &lastState{}, flowGroups{}, &lastDevice{}
			routes := NewRouteManager("n1", model.WireGuard, hostnet.State{Gateway: "gw", Device: "wg"}, host)
			tunnel := NewTunnelManager("n1", model.WireGuard, pipeline.Node{GatewayPort: 2, TunnelPort: 1, GatewayMAC: make([]byte, 6)}, flows)
			peers := NewWireGuardManager("n1", model.PublicKey{1}, 51820, device)
			// First each node has a key of its own: what follows from it must go.
			for _, keys := range []map[string]byte{{"n1": 11, "n2": 12, "n3": 13, "n4": 14}, c.keys} {
				for _, m := range []Manager{routes, tunnel, peers} {
					give(m, keyed(clusterOfThree(), keys)...)
				}
			}
			var encrypted []string
			for i, name := range []string{"n2", "n3", "n4"} {
				p := host.Peers[i]
				if len(p.Routed) > 0 || len(p.Encrypted)+len(p.Left) != 2 {
					t.Errorf("%s: routed %v, left %v, encrypted %v", name, p.Routed, p.Left, p.Encrypted)
				}
				if len(p.Encrypted) == 2 {
					encrypted = append(encrypted, name)
				}
				if text := flows["peer "+name]; strings.Contains(text, "tun_src") || strings.Contains(text, "tun_dst") {
					t.Errorf("%s: flows of the tunnel:\n%s", name, text)
				}
			}
			if got := strings.Join(encrypted, " "); got != c.encrypted {
				t.Errorf("encrypted to %q, want %q", got, c.encrypted)
			}
			if len(device.Peers) != len(encrypted) {
				t.Errorf("peers of the device: %s", device.peers())
			}
			problems := routes.Problems()
			if len(problems) != len(c.problems) {
				t.Fatalf("problems %v", problems)
			}
			for i, part := range c.problems {
				if !strings.Contains(problems[i].Error(), part) || !strings.Contains(problems[i].Field, model.PublicKeyAnnotation) {
					t.Errorf("problem %v, want %s", problems[i], part)
				}
			}
			if own := peers.Problems(); (len(own) > 0) != (c.keys["n1"] != 1) {
				t.Errorf("problems of the own key: %v", own)
			}
		})
	}
}

// TestSourcesOfPeers: a peer may use its own pod prefixes and addresses.
func TestSourcesOfPeers(t *testing.T) {
	device := &lastDevice{}
	m := NewWireGuardManager("n1", model.PublicKey{1}, 51820, device)
	keys := map[string]byte{"n1": 1, "n2": 2, "n3": 3, "n4": 4}
	give(m, keyed(clusterOfThree(), keys)...)
	const four = "4 192.168.50.4:51820 [10.10.4.0/24 fd00:10:0:4::/64 192.168.50.4/32]"
	if got, want := device.peers(), "2 192.168.50.2:51820 [10.10.2.0/24 fd00:10:0:2::/64 192.168.50.2/32 fd00:50::2/128]; "+
		"3 192.168.60.3:51820 [10.10.3.0/24 fd00:10:0:3::/64 192.168.60.3/32 fd00:60::3/128]; "+four; got != want {
		t.Errorf("peers %s\nwant %s", got, want)
	}
	if got := fmt.Sprint(device.Addresses); got != "[10.10.1.1/32 fd00:10:0:1::1/128]" {
		t.Errorf("addresses %s", got)
	}
}

// TestEncryptedSenders: with WireGuard only that device's packets are believed, and nothing leaves by another one.
func TestEncryptedSenders(t *testing.T) {
	h, hops := &held{chains: map[string]tables.Chain{}, sets: map[string]map[model.Member]bool{}}, &hopsOf{}
	m := NewSenderManager("n1", model.WireGuard, rules.NewRenderer("gw", rules.NFTablesNameLength).Between(model.WireGuard), h, h, hops)
	give(m, append(keyed(clusterOfThree(), map[string]byte{"n1": 1, "n2": 2}), model.HopsUpdate{})...)
	if len(hops.peers) != 0 || h.senders() != "" {
		t.Errorf("asks for %v, believes %s", hops.peers, h.senders())
	}
	for name, want := range map[string]string{
		rules.ChainSenders: "set mark; iif gw: return; iif lo: return; iif flx-wg0: believe; ip4 src @pod-networks-4: drop; ip6 src @pod-networks-6: drop; " +
			"ip4 src @nodes-4, ip4 dst @pod-networks-4: drop; ip6 src @nodes-6, ip6 dst @pod-networks-6: drop",
		rules.ChainCleartext: "oif gw: return; oif lo: return; oif flx-wg0: return; " +
			"ip4 dst @pod-networks-4: drop; ip4 src @pod-networks-4, ip4 dst @nodes-4: drop; " +
			"ip6 dst @pod-networks-6: drop; ip6 src @pod-networks-6, ip6 dst @nodes-6: drop",
	} {
		var all []string
		for _, r := range h.chains[name].Rules {
			var matches []string
			for _, match := range r.Matches {
				matches = append(matches, match.String())
			}
			action := map[tables.Action]string{
				tables.Drop{}: "drop", tables.Return{}: "return", tables.SetMark{Value: 0, Mask: rules.MarkBelieved}: "set mark",
				tables.SetMarkAndReturn{Value: rules.MarkBelieved, Mask: rules.MarkBelieved}: "believe",
			}[r.Action]
			if len(matches) > 0 {
				action = strings.Join(matches, ", ") + ": " + action
			}
			all = append(all, action)
		}
		if got := strings.Join(all, "; "); got != want {
			t.Errorf("%s: %s\nwant %s", name, got, want)
		}
	}
	if n := len(h.sets[rules.NodesSet(model.IPv4)]); n != 4 {
		t.Errorf("%d addresses of nodes", n)
	}
	if n := len(h.sets[rules.PodNetworksSet(model.IPv6)]); n != 4 {
		t.Errorf("%d pod prefixes", n)
	}
}
