package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/internal/sysctl"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/cnitest"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/everykind"
	labprobe "github.com/felixlike/felixlike/test/lab/probe"
)

// chainedNode is a node whose pods' interfaces another CNI plugin makes.
type chainedNode struct {
	*cniNode
	// maker calls that plugin, settings are its configuration.
	maker    cnitest.Runtime
	settings map[string]any
}

// chainedPod is a sandbox with the result of its plugins.
type chainedPod struct {
	cnitest.Sandbox
	reply cnitest.Reply
}

// TestPolicyOnly: behind the reference plugins bridge and ptp, without Open vSwitch, pods get the verdicts of their policies under each
// netfilter backend, whatever a pod or a stranger forges, and whatever fails.
func TestPolicyOnly(t *testing.T) {
	t.Parallel()
	for _, plugin := range []string{"bridge", "ptp"} {
		t.Run(plugin, func(t *testing.T) {
			t.Parallel()
			policyOnly(newChainedNode(t, plugin))
		})
	}
}

func newChainedNode(t *testing.T, plugin string) *chainedNode {
	t.Helper()
	n := &chainedNode{cniNode: newEmptyNode(t, config.NFTables)}
	n.maker = cnitest.Runtime{Plugins: n.Plugins, Type: plugin}
	n.settings = map[string]any{
		"isGateway": true, "ipMasq": false, "macspoofchk": true, "bridge": "cni0",
		"ipam": map[string]any{
			"type": "host-local", "dataDir": filepath.Join(n.dir, "ipam"), "routes": []map[string]string{{"dst": "0.0.0.0/0"}, {"dst": "::/0"}},
			"ranges": [][]map[string]string{{{"subnet": "10.77.0.0/24"}}, {{"subnet": "fd77:1::/64"}}},
		},
	}
	n.flags = []string{"--traffic-mode", "networkPolicyOnly"}
	n.source = []string{"--manifests", n.manifests}
	n.apply(cniCluster)
	// Distributions turn these off.
	n.must(n.ns.Do(func() error {
		return errors.Join(sysctl.Write("net/bridge/bridge-nf-call-iptables", "0"), sysctl.Write("net/bridge/bridge-nf-call-ip6tables", "0"))
	}))
	return n
}

// addBefore has the plugin that makes interfaces add a pod, as a runtime does before felixlike is installed.
func (n *chainedNode) addBefore(id, pod string) chainedPod {
	n.Helper()
	p := n.made(id, pod)
	var result map[string]any
	n.must(json.Unmarshal([]byte(p.reply.Raw), &result))
	text, err := json.Marshal(map[string]any{
		"kind": libcni.CNICacheV1, "containerId": id, "ifName": "eth0", "networkName": "felixlike", "netns": p.NS.Path(), "result": result,
		"cniArgs": [][2]string{{"K8S_POD_NAMESPACE", "x"}, {"K8S_POD_NAME", pod}},
	})
	n.must(err)
	results := filepath.Join(n.dir, "varlibcni", "results")
	n.must(os.MkdirAll(results, 0o755))
	n.must(os.WriteFile(filepath.Join(results, "felixlike-"+id+"-eth0"), text, 0o600))
	return p
}

// add has both plugins add a pod, as a runtime does.
func (n *chainedNode) add(id, pod string) chainedPod {
	n.Helper()
	p := n.made(id, pod)
	n.ok("ADD", p.Sandbox, p.chain())
	return p
}

func (n *chainedNode) made(id, pod string) chainedPod {
	n.Helper()
	p := chainedPod{Sandbox: n.sandbox(id, pod)}
	p.reply = n.make("ADD", p)
	if p.reply.Failed {
		n.Fatalf("%s: %s", n.maker.Type, p.reply.Raw)
	}
	return p
}

func (n *chainedNode) remove(p chainedPod) {
	n.Helper()
	n.ok("DEL", p.Sandbox, p.chain())
	if r := n.make("DEL", p); r.Failed {
		n.Errorf("%s DEL: %s", n.maker.Type, r.Raw)
	}
}

// make calls the plugin that makes interfaces, in the node's namespace.
func (n *chainedNode) make(command string, p chainedPod) (reply cnitest.Reply) {
	n.Helper()
	n.must(n.ns.Do(func() (err error) {
		reply, err = n.maker.Call(n.Context(), command, "1.0.0", p.Sandbox, n.settings)
		return err
	}))
	return reply
}

// chain is the part of felixlike-cni's configuration that names the result of the plugin before.
func (p chainedPod) chain() map[string]any {
	var result map[string]any
	if json.Unmarshal([]byte(p.reply.Raw), &result) != nil {
		return nil
	}
	return map[string]any{"prevResult": result}
}

// addresses returns the pod's address of each family.
func (p chainedPod) addresses() []netip.Addr {
	var all []netip.Addr
	for _, ip := range p.reply.IPs {
		a, _ := netip.AddrFromSlice(ip.Address.IP)
		all = append(all, a.Unmap())
	}
	return all
}

// through tries connections from the addresses in a namespace to port 80 of a pod, in both families.
func (n *chainedNode) through(from *namespace.Namespace, sources []netip.Addr, to chainedPod, patient bool) string {
	n.Helper()
	a, b := labprobe.NewStation(from), labprobe.NewStation(to.NS)
	defer a.Close()
	defer b.Close()
	var flows []labprobe.Flow
	for i, target := range to.addresses() {
		at := netip.AddrPortFrom(target, 80)
		n.must(b.Serve(model.TCP, at))
		flows = append(flows, labprobe.Flow{From: a, Source: sources[i], Target: at, Protocol: model.TCP})
	}
	timeout := probeTimeout
	if patient {
		timeout = patience
	}
	got := ""
	for _, o := range labprobe.Run(n.Context(), flows, labprobe.Options{Timeout: timeout}) {
		n.must(o.Err)
		got += map[bool]string{true: "1", false: "0"}[o.Through]
	}
	return got
}

// alone is a policy of pod d: TCP port 80 from pod b, and nothing else in both directions.
const alone = `
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: x, name: alone}, spec: {podSelector: {matchLabels: {pod: d}},
  policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}], ports: [{port: 80}]}]}}
`

// neighbours: an isolated pod still finds its neighbours.
func (n *chainedNode) neighbours(when string, b, d chainedPod) {
	n.Helper()
	for _, p := range []chainedPod{b, d} {
		n.must(p.NS.Do(func() error { return exec.Command("ip", "-6", "neigh", "flush", "dev", "eth0").Run() }))
	}
	if got := n.through(b.NS, b.addresses(), d, true); got != "11" {
		n.Errorf("%s: to an isolated pod that knows no neighbour: %s", when, got)
	}
	if got := n.through(d.NS, d.addresses(), b, false); got != "00" {
		n.Errorf("%s: from an isolated pod: %s", when, got)
	}
}

// verdicts tries the pods with each other: a takes packets from b alone.
func (n *chainedNode) verdicts(when string, a, b, c chainedPod) {
	n.Helper()
	for _, v := range []struct {
		from, to chainedPod
		want     string
	}{{b, a, "11"}, {c, a, "00"}, {a, c, "11"}, {c, b, "11"}} {
		if got := n.through(v.from.NS, v.from.addresses(), v.to, v.want == "11"); got != v.want {
			n.Errorf("%s: from %s to %s: %s, want %s", when, v.from.Pod, v.to.Pod, got, v.want)
		}
	}
}

func policyOnly(n *chainedNode) {
	n.apply(alone, "a", "b", "c", "d")
	a := n.addBefore("one", "a")
	n.start()
	n.untilAvailable()
	b, c := n.add("two", "b"), n.add("three", "c")
	n.verdicts("of a pod that was attached before felixlike", a, b, c)
	n.remove(a)
	a = n.add("four", "a")
	d := n.add("five", "d")
	if got := n.through(c.NS, c.addresses(), a, false); got != "00" {
		n.Errorf("denied traffic, as soon as ADD has answered: %s", got)
	}
	n.verdicts("at first", a, b, c)
	n.ok("CHECK", a.Sandbox, a.chain())
	n.outside(a, b)
	n.neighbours("at first", b, d)
	n.forged("at first", a, b, c)
	n.stop(syscall.SIGKILL)
	n.verdicts("without an agent", a, b, c)
	n.start()
	n.untilAvailable()
	n.ok("CHECK", a.Sandbox, a.chain())
	n.tampered(a, b, c)
	socket := filepath.Join(filepath.Dir(n.Socket), control.SocketName)
	client := control.NewClient(socket)
	for _, backend := range []string{config.IPTablesNFT, config.IPTablesLegacy, config.NFTables} {
		n.must(client.SetBackend(n.Context(), backend))
		n.verdicts("under "+backend, a, b, c)
		n.neighbours("under "+backend, b, d)
		n.forged("under "+backend, a, b, c)
		for _, args := range [][]string{{"diff", "live", "wanted"}, {"check"}, {"status"}} {
			if out, errs, code := felixctl(n.T, append(args, "--socket", socket)...); code != 0 {
				n.Errorf("under %s: felixctl %v: exit code %d: %s%s", backend, args, code, out, errs)
			}
		}
	}
	if err := client.SetBackend(n.Context(), config.OpenFlow); err == nil || !strings.Contains(err.Error(), "networkPolicyOnly") {
		n.Errorf("backend openflow: %v", err)
	}

	for _, p := range []chainedPod{a, b, c, d} {
		n.remove(p)
	}
	eventually.True(n.T, "the table of sources has no pod", func() bool {
		return !strings.Contains(n.nft("list", "table", "inet", "felixlike-pods"), "10.77.0.")
	})
}

// outside tries connections from another host to the pods, also one that forges the address of pod b.
func (n *chainedNode) outside(a, b chainedPod) {
	n.Helper()
	far := n.space("far")
	n.must(n.ns.Do(func() error {
		return exec.Command("ip", "link", "set", "far0", "netns", far.Name()).Run()
	}))
	n.must(far.Do(func() error {
		for _, line := range []string{
			"link set lo up", "link set far0 up", "addr add 192.168.77.9/24 dev far0", "addr add fd77::9/64 dev far0 nodad",
			"route add default via 192.168.77.1", "route add default via fd77::1",
		} {
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", line, err, out)
			}
		}
		return nil
	}))
	host := []netip.Addr{netip.MustParseAddr("192.168.77.9"), netip.MustParseAddr("fd77::9")}
	if got := n.through(far, host, b, true); got != "11" {
		n.Errorf("from outside to a pod without policy: %s", got)
	}
	if got := n.through(far, host, a, false); got != "00" {
		n.Errorf("from outside to a pod with policy: %s", got)
	}
	out := openWire(n.T, far, "far0")
	var uplink net.HardwareAddr
	n.must(n.ns.Do(func() error {
		link, err := netlink.LinkByName("eth0")
		if err == nil {
			uplink = link.Attrs().HardwareAddr
		}
		return err
	}))
	for i, address := range b.addresses() {
		n.mustNotArrive("another host with the address of an allowed pod", out, testMAC, uplink, address, a, i, b)
	}
}

// forged has pod c send with addresses that it does not have.
func (n *chainedNode) forged(when string, a, b, c chainedPod) {
	n.Helper()
	out := openWire(n.T, c.NS, "eth0")
	unused := []netip.Addr{netip.MustParseAddr("10.77.0.99"), netip.MustParseAddr("fd77:1::99")}
	foreign := []netip.Addr{netip.MustParseAddr("203.0.113.5"), netip.MustParseAddr("2001:db8::5")}
	for i := range b.addresses() {
		n.mustNotArriveAs(when+": pod c in VLAN 0, which hosts take for none", out, c.mac(), a.mac(), c.addresses()[i], a, i, b, func(kind uint16, packet []byte) (uint16, []byte) {
			return unix.ETH_P_8021Q, append([]byte{0, 0, byte(kind >> 8), byte(kind)}, packet...)
		})
		for _, to := range []net.HardwareAddr{c.gateway(), a.mac()} {
			n.mustNotArrive(when+": pod c with the address of pod b", out, c.mac(), to, b.addresses()[i], a, i, b)
			n.mustNotArrive(when+": pod c with MAC address and address of pod b", out, b.mac(), to, b.addresses()[i], a, i, b)
		}
		for _, to := range []net.HardwareAddr{c.gateway(), b.mac()} {
			n.mustNotArrive(when+": pod c with an unused address", out, c.mac(), to, unused[i], b, i, a)
			n.mustNotArrive(when+": pod c with a foreign address", out, c.mac(), to, foreign[i], b, i, a)
		}
	}
	n.everyFrame(when, a, b, c)
	n.everyPacket(when, a, b, c)
}

// everyFrame has pod c send frames of every kind with an IP packet to pod a, which allows packets of pod b alone. None arrives, but for ARP.
func (n *chainedNode) everyFrame(when string, a, b, c chainedPod) {
	n.Helper()
	kinds := everykind.Tagged
	if when == "at first" {
		kinds = everykind.Frames
	}
	wires := map[string]*everykind.Wire{}
	for _, p := range []chainedPod{a, b, c} {
		n.must(p.NS.Do(func() (err error) {
			wires[p.Pod], err = everykind.Open("eth0")
			return err
		}))
		defer wires[p.Pod].Close()
	}
	for _, to := range []net.HardwareAddr{a.mac(), c.gateway()} {
		for i := range a.addresses() {
			var raw [][]byte
			frames := kinds(c.mac(), to, func(number uint32) (uint16, []byte) {
				return udpPacket(c.addresses()[i], a.addresses()[i], markerPort, string(everykind.Mark(number)))
			})
			for _, f := range frames {
				raw = append(raw, f.Bytes)
			}
			n.must(wires[c.Pod].Send(raw, wires[a.Pod]))
			kind, packet := udpPacket(b.addresses()[i], a.addresses()[i], markerPort, string(everykind.Mark(0)))
			n.must(wires[a.Pod].Await(wires[b.Pod], 0, ethernet(b.mac(), b.gateway(), kind, packet)))
			arrived, err := wires[a.Pod].Take()
			n.must(err)
			for j, f := range frames {
				if arrived[uint32(j+1)] != nil && f.Type != everykind.ARP {
					n.Errorf("%s: to %s, IPv%d: %s arrived at pod a", when, to, 4+2*i, f.Name)
				}
			}
		}
	}
}

// everyPacket has pod c send packets of all protocols and types of ICMP to pod a, which denies them. Only neighbour discovery comes to it, across a bridge.
func (n *chainedNode) everyPacket(when string, a, b, c chainedPod) {
	n.Helper()
	r := &everyRounds{t: n.T, next: 1}
	for _, next := range []net.HardwareAddr{a.mac(), c.gateway()} {
		ends := map[string]*everyEnd{}
		for _, p := range []chainedPod{a, b, c} {
			mac := a.mac()
			if p.Pod == c.Pod {
				mac = next
			}
			ends[p.Pod] = newEveryEnd(n.T, p.NS, "eth0", mac, func(f model.Family) netip.Addr {
				return p.addresses()[map[model.Family]int{model.IPv4: 0, model.IPv6: 1}[f]]
			})
			if n.maker.Type != "bridge" {
				ends[p.Pod].next = p.gateway()
			}
		}
		for _, f := range model.Families() {
			r.send(fmt.Sprintf("%s, pod c to pod a by %s", when, next), f, ends[c.Pod], ends[a.Pod], ends[b.Pod], ends[a.Pod], netip.Addr{})
		}
		bridged := n.maker.Type == "bridge" && next.String() == a.mac().String()
		r.passes = func(p everykind.Packet) bool {
			return bridged && p.Protocol == 58 && p.HopLimit == 255 && untracked(p.Type)
		}
		if few := r.judge(ends[a.Pod]); len(few) > 0 {
			r.t.Error(few)
		}
	}
}

// untracked reports whether conntrack leaves a type of ICMPv6 alone.
func untracked(kind int) bool {
	return slices.Contains([]int{130, 131, 132, 133, 134, 135, 136, 143, 151, 152}, kind)
}

// mustNotArrive sends a datagram with the source, and fails the test if it arrives at the pod before one of an honest pod.
func (n *chainedNode) mustNotArrive(what string, out *wire, from, to net.HardwareAddr, source netip.Addr, at chainedPod, family int, honest chainedPod) {
	n.Helper()
	n.mustNotArriveAs(what, out, from, to, source, at, family, honest, func(kind uint16, packet []byte) (uint16, []byte) { return kind, packet })
}

// mustNotArriveAs is mustNotArrive for a packet in another frame.
func (n *chainedNode) mustNotArriveAs(what string, out *wire, from, to net.HardwareAddr, source netip.Addr, at chainedPod, family int, honest chainedPod, framed func(uint16, []byte) (uint16, []byte)) {
	n.Helper()
	lie := fmt.Sprintf("lie %d.", markers.Add(1))
	kind, packet := framed(udpPacket(source, at.addresses()[family], markerPort, lie))
	wireOf := openWire(n.T, honest.NS, "eth0")
	if arrives(n.T, openWire(n.T, at.NS, "eth0"), func() { out.send(ethernet(from, to, kind, packet)) },
		func(frame []byte) bool { return bytes.Contains(frame, []byte(lie)) },
		func(text string) {
			kind, packet := udpPacket(honest.addresses()[family], at.addresses()[family], markerPort, text)
			wireOf.send(ethernet(honest.mac(), honest.gateway(), kind, packet))
		}) {
		n.Errorf("%s: the packet came to pod %s (%s)", what, at.Pod, at.addresses()[family])
	}
}

// gateway returns the MAC address of the pod's next hop: of the bridge, or of the host side of its pair.
func (p chainedPod) gateway() net.HardwareAddr { return hardwareAddr(p.reply.Interfaces[0].Mac) }

// mac returns the MAC address of the pod itself.
func (p chainedPod) mac() net.HardwareAddr {
	for _, i := range p.reply.Interfaces {
		if i.Sandbox != "" {
			return hardwareAddr(i.Mac)
		}
	}
	return nil
}

func hardwareAddr(text string) net.HardwareAddr {
	mac, _ := net.ParseMAC(text)
	return mac
}

// testMAC is the MAC address of a host that nobody knows.
var testMAC = net.HardwareAddr{2, 0, 0, 0, 0, 99}

// tampered removes a table of the agent while no agent runs: nothing denied passes.
func (n *chainedNode) tampered(a, b, c chainedPod) {
	n.Helper()
	for _, table := range []string{"felixlike", "felixlike-pods"} {
		n.stop(syscall.SIGKILL)
		n.nft("delete", "table", "inet", table)
		for _, from := range []chainedPod{b, c} {
			if got := n.through(from.NS, from.addresses(), a, false); got != "00" {
				n.Errorf("without the table %s: from %s to a: %s", table, from.Pod, got)
			}
		}
		n.start()
		n.untilAvailable()
		n.verdicts("after the table "+table+" was removed", a, b, c)
	}
	if n.maker.Type == "bridge" {
		n.nft("delete", "table", "bridge", "felixlike-pods")
		eventually.True(n.T, "the table of frames is there again", func() bool {
			return strings.Contains(n.nft("list", "tables", "bridge"), "felixlike-pods")
		})
	}
}

func (n *chainedNode) nft(args ...string) (out string) {
	n.Helper()
	n.must(n.ns.Do(func() error {
		out = n.run("nft", args...)
		return nil
	}))
	return out
}
