package backend

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/test/tablestest"
)

// tunnelLab is a node with a tunnel device of the kernel, and hosts that send to it.
type tunnelLab struct {
	node  tablestest.Namespace
	hosts map[string]tablestest.Namespace
}

// vxlanPort is that of the lab's tunnel. Of the tunnels, this kernel may have a device of VXLAN only; that of Geneve takes
// packets in the same way.
var vxlanPort = model.TunnelPortOf("vxlan")

// newTunnelLab has host n at 192.168.5n.2, with 10.99.0.(10+n) inside the tunnel. The node has 10.99.0.1.
func newTunnelLab(t *testing.T, hosts ...string) tunnelLab {
	t.Helper()
	l := tunnelLab{node: tablestest.NewNamespace(t, "nft", "ping"), hosts: map[string]tablestest.Namespace{}}
	device := func(ns tablestest.Namespace, inner string, more ...string) {
		args := append([]string{"ip", "link", "add", "vx0", "type", "vxlan", "id", "7", "dstport", fmt.Sprint(vxlanPort)}, more...)
		if out, err := exec.Command("ip", append([]string{"netns", "exec", ns.Name}, args...)...).CombinedOutput(); err != nil {
			t.Skipf("no VXLAN device: %v\n%s", err, out)
		}
		ns.Run(t, "ip", "addr", "add", inner+"/24", "dev", "vx0")
		ns.Run(t, "ip", "link", "set", "vx0", "up")
	}
	device(l.node, "10.99.0.1")
	for i, name := range hosts {
		ns := tablestest.NewNamespace(t)
		l.hosts[name] = ns
		far := fmt.Sprintf("to%d", i)
		l.node.Run(t, "ip", "link", "add", far, "type", "veth", "peer", "name", "up0", "netns", ns.Name)
		l.node.Run(t, "ip", "addr", "add", fmt.Sprintf("192.168.5%d.1/24", i), "dev", far)
		l.node.Run(t, "ip", "link", "set", far, "up")
		ns.Run(t, "ip", "addr", "add", fmt.Sprintf("192.168.5%d.2/24", i), "dev", "up0")
		ns.Run(t, "ip", "link", "set", "up0", "up")
		device(ns, fmt.Sprintf("10.99.0.%d", 10+i), "remote", fmt.Sprintf("192.168.5%d.1", i))
	}
	return l
}

// reach checks which hosts get an answer through the tunnel.
func (l tunnelLab) reach(t *testing.T, when string, want map[string]bool) {
	t.Helper()
	for name, through := range want {
		// A lookup that has failed is not repeated at once.
		l.hosts[name].Run(t, "ip", "neigh", "flush", "dev", "vx0")
		out, err := exec.Command("ip", "netns", "exec", l.hosts[name].Name, "ping", "-c", "2", "-i", "0.2", "-W", "1", "10.99.0.1").CombinedOutput()
		if (err == nil) != through {
			t.Errorf("%s: %s reaches the node through the tunnel: %v\n%s", when, name, err == nil, out)
		}
	}
}

func nodeAt(name string, addresses ...string) model.Update {
	n := &model.Node{Name: name}
	for _, a := range addresses {
		n.Addresses = append(n.Addresses, netip.MustParseAddr(a))
	}
	return model.NodeUpdate{Node: n}
}

// run has the stage take updates and programs it.
func run(t *testing.T, s Stage, updates ...model.Update) Applied {
	t.Helper()
	for _, m := range s.Managers {
		for _, u := range updates {
			m.OnUpdate(u)
		}
		m.CompleteDeferredWork()
	}
	did, err := s.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return did
}

func tunnelPort(c Config) Stage {
	return TunnelPort(c).Stage
}

// TestTunnelPort: packets to the tunnel port come to the tunnel device from addresses of nodes only. A new node, a node
// with a new address and a removed node change that at once.
func TestTunnelPort(t *testing.T) {
	l := newTunnelLab(t, "peer", "other")
	l.reach(t, "without a table", map[string]bool{"peer": true, "other": true})
	closed := TunnelPort(Config{Node: "n1", TunnelPort: vxlanPort, NetNS: l.node.FD})
	s := closed.Stage
	dropped := func() uint64 {
		t.Helper()
		packets, err := closed.Dropped(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return packets
	}
	if packets := dropped(); packets != 0 {
		t.Errorf("without the table %d packets of strangers", packets)
	}
	if did := run(t, s); did.Writes != 0 {
		t.Fatalf("before the nodes are known: %d writes", did.Writes)
	}
	run(t, s, nodeAt("n1", "192.168.50.1", "fd00::1"), nodeAt("n2", "192.168.50.2", "fd00::2"))
	l.reach(t, "one peer", map[string]bool{"peer": true, "other": false})
	if packets := dropped(); packets == 0 {
		t.Error("the stranger's packets are not counted")
	}
	run(t, s, nodeAt("n3", "192.168.51.2"))
	l.reach(t, "a new node", map[string]bool{"peer": true, "other": true})
	run(t, s, nodeAt("n2", "192.168.50.99"))
	l.reach(t, "a node has changed its address", map[string]bool{"peer": false, "other": true})
	run(t, s, nodeAt("n2", "192.168.50.2"), model.NodeRemove{Name: "n3"})
	l.reach(t, "the node is removed", map[string]bool{"peer": true, "other": false})
}

// TestTunnelPortMark: the mark by which firewalls know packets of nodes is on no packet behind INPUT.
func TestTunnelPortMark(t *testing.T) {
	l := newTunnelLab(t, "peer")
	run(t, tunnelPort(Config{Node: "n1", TunnelPort: vxlanPort, NetNS: l.node.FD}), nodeAt("n2", "192.168.50.2"))
	l.node.Feed(t, fmt.Sprintf(`table inet watch {
		counter marked { }
		counter inside { }
		chain input {
			type filter hook input priority 0
			udp dport %d meta mark & %#x != 0 counter name marked
			iifname vx0 meta mark & %#[2]x != 0 counter name inside
		}
	}`, vxlanPort, rules.MarkBelieved), "nft", "-f", "-")
	l.reach(t, "marked", map[string]bool{"peer": true})
	if text := l.node.Run(t, "nft", "list", "counter", "inet", "watch", "marked"); strings.Contains(text, "packets 0") {
		t.Errorf("packets of the peer have no mark:\n%s", text)
	}
	if text := l.node.Run(t, "nft", "list", "counter", "inet", "watch", "inside"); !strings.Contains(text, "packets 0") {
		t.Errorf("packets inside the tunnel have the mark of the outer ones:\n%s", text)
	}
}

// TestTunnelIsNotTracked: connection tracking has no entry of the tunnel's packets, in either direction, and has those
// of the packets inside. Packets of others to the same port are tracked: a masquerade needs that.
func TestTunnelIsNotTracked(t *testing.T) {
	l := newTunnelLab(t, "peer", "other")
	l.node.Feed(t, "table inet watch {\n chain input {\n type filter hook input priority 0\n ct state established accept\n }\n}", "nft", "-f", "-")
	tracked := func() (tunnel, inside bool) {
		t.Helper()
		entries := l.node.Run(t, "conntrack", "-L")
		return strings.Contains(entries, fmt.Sprintf("dport=%d", vxlanPort)), strings.Contains(entries, "src=10.99.0.10")
	}
	l.reach(t, "without a table", map[string]bool{"peer": true})
	if tunnel, inside := tracked(); !tunnel || !inside {
		t.Fatalf("without the table: tunnel %v, packets inside %v", tunnel, inside)
	}
	run(t, tunnelPort(Config{Node: "n1", TunnelPort: vxlanPort, NetNS: l.node.FD}), nodeAt("n1", "192.168.50.1"), nodeAt("n2", "192.168.50.2"))
	l.node.Run(t, "conntrack", "-F")
	l.reach(t, "with the table", map[string]bool{"peer": true})
	if tunnel, inside := tracked(); tunnel || !inside {
		t.Errorf("with the table: tunnel %v, packets inside %v", tunnel, inside)
	}
	l.node.Run(t, "bash", "-c", fmt.Sprintf("echo x > /dev/udp/192.168.51.2/%d", vxlanPort))
	if tunnel, _ := tracked(); !tunnel {
		t.Error("a packet to the same port of a host that is no node is not tracked")
	}
}

// TestTunnelPortOverRestart: a restarted agent writes nothing, and one with a tunnel without a UDP port removes the table.
func TestTunnelPortOverRestart(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	list := func() string { return ns.Run(t, "nft", "-s", "list", "ruleset") }
	c := Config{Node: "n1", TunnelPort: vxlanPort, NetNS: ns.FD}
	nodes := []model.Update{nodeAt("n1", "192.168.50.1", "fd00::1"), nodeAt("n2", "192.168.50.2", "fd00::2")}
	run(t, tunnelPort(c), nodes...)
	programmed := list()
	for _, want := range []string{"udp dport 4789 ip saddr @nodes-4", "udp dport 4789 ip6 saddr @nodes-6", "192.168.50.2", "fd00::2"} {
		if !strings.Contains(programmed, want) {
			t.Fatalf("no %q in\n%s", want, programmed)
		}
	}
	if did := run(t, tunnelPort(c), nodes...); did.Writes != 0 || list() != programmed {
		t.Errorf("a restart: %d writes\n%s", did.Writes, list())
	}
	if c.TunnelPort = 0; run(t, tunnelPort(c)).Writes != 1 || list() != "" {
		t.Errorf("left without a port:\n%s", list())
	}
	if did := run(t, tunnelPort(c)); did.Writes != 0 {
		t.Errorf("%d writes without a table", did.Writes)
	}
	c.TunnelPort = vxlanPort
	run(t, tunnelPort(c), nodes...)
	if err := RemoveBeside(t.Context(), ns.FD); err != nil || list() != "" {
		t.Errorf("left after the removal: %v\n%s", err, list())
	}
}

// TestFirewalls: with INPUT of either variant of iptables on DROP, packets of peers come to the tunnel device, and those of
// strangers do not. A chain of nf_tables that drops them is reported until the rule is added that the report names.
func TestFirewalls(t *testing.T) {
	for _, tool := range []string{"iptables-legacy", "iptables-nft"} {
		t.Run(tool, func(t *testing.T) {
			l := newTunnelLab(t, "peer", "stranger")
			only := map[string]bool{"peer": true, "stranger": false}
			c := Config{Node: "n1", TunnelPort: vxlanPort, NetNS: l.node.FD}
			port := TunnelPort(c)
			run(t, port.Stage, nodeAt("n1", "192.168.50.1"), nodeAt("n2", "192.168.50.2"))
			walls, problems := Firewalls(c, port.Ends)
			run(t, walls)
			l.node.Run(t, tool, "-A", "INPUT", "-i", "vx0", "-j", "ACCEPT")
			l.node.Run(t, tool, "-P", "INPUT", "DROP")
			l.reach(t, "before the rule", map[string]bool{"peer": false, "stranger": false})
			walls.Invalidate()
			if did := run(t, walls); did.Writes != 1 {
				t.Errorf("%d writes", did.Writes)
			}
			l.reach(t, "with the rule", only)
			if found := problems(); len(found) > 0 {
				t.Errorf("problems: %v", found)
			}
			if err := RemoveBeside(t.Context(), l.node.FD); err != nil {
				t.Error(err)
			}
			if text := l.node.Run(t, tool+"-save"); strings.Contains(text, "felixlike") {
				t.Errorf("left after the removal:\n%s", text)
			}
		})
	}
}

// TestFirewallOfNFTables: a chain of nf_tables that drops packets of peers is reported, with the rule to add. With that rule
// the packets of peers come to the tunnel device.
func TestFirewallOfNFTables(t *testing.T) {
	l := newTunnelLab(t, "peer", "stranger")
	l.node.Feed(t, "table inet wall {\nchain in {\ntype filter hook input priority 0; policy drop;\nct state established accept\niifname vx0 accept\n}\n}\n", "nft", "-f", "-")
	c := Config{Node: "n1", TunnelPort: vxlanPort, NetNS: l.node.FD}
	port := TunnelPort(c)
	run(t, port.Stage, nodeAt("n1", "192.168.50.1"), nodeAt("n2", "192.168.50.2"))
	l.reach(t, "before", map[string]bool{"peer": false, "stranger": false})
	walls, problems := Firewalls(c, port.Ends)
	run(t, walls)
	found := problems()
	if len(found) != 1 || !strings.Contains(found[0].Reason, "chain in of table inet wall") {
		t.Fatalf("problems: %v", found)
	}
	_, command, _ := strings.Cut(found[0].Reason, ": ")
	l.node.Run(t, strings.Fields(command)...)
	l.reach(t, "after "+command, map[string]bool{"peer": true, "stranger": false})
	again, problems := Firewalls(c, port.Ends)
	if run(t, again); len(problems()) > 0 {
		t.Errorf("problems: %v", problems())
	}
}

// TestFirewallThatIPTablesCannotShow: where another program has written to iptables' own table with nft, the agent cannot keep its rule there.
// It reports the chain, and does not fail.
func TestFirewallThatIPTablesCannotShow(t *testing.T) {
	l := newTunnelLab(t, "peer")
	l.node.Run(t, "iptables-nft", "-P", "INPUT", "DROP")
	l.node.Run(t, "iptables-nft", "-A", "INPUT", "-i", "vx0", "-j", "ACCEPT")
	l.node.Feed(t, "add chain ip filter theirs\nadd rule ip filter theirs meta mark set numgen inc mod 2\n", "nft", "-f", "-")
	c := Config{Node: "n1", TunnelPort: vxlanPort, NetNS: l.node.FD}
	port := TunnelPort(c)
	run(t, port.Stage, nodeAt("n1", "192.168.50.1"), nodeAt("n2", "192.168.50.2"))
	walls, problems := Firewalls(c, port.Ends)
	run(t, walls)
	found := problems()
	if len(found) != 1 || !strings.Contains(found[0].Reason, "chain INPUT of table ip filter drops") {
		t.Fatalf("problems: %v", found)
	}
	_, command, _ := strings.Cut(found[0].Reason, ": ")
	l.node.Run(t, strings.Fields(command)...)
	l.reach(t, "after "+command, map[string]bool{"peer": true})
	if err := RemoveBeside(t.Context(), l.node.FD); err != nil {
		t.Error(err)
	}
}
