package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/internal/listing"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
	"github.com/felixlike/felixlike/test/cnitest"
	"github.com/felixlike/felixlike/test/lab"
	labprobe "github.com/felixlike/felixlike/test/lab/probe"
)

// cniNode is a node with a real agent. A container runtime attaches its pods.
type cniNode struct {
	*testing.T
	cnitest.Runtime
	ns             *namespace.Namespace
	ovs            *ovsdaemon.Daemons
	dir, manifests string
	backend        string
	// source are the flags that name the datastore, flags further ones.
	source, flags []string
	agent         *exec.Cmd
}

// cniCluster is a node with its pods. x/a takes packets from x/b alone.
const cniCluster = `
{apiVersion: v1, kind: Node, metadata: {name: n1}, spec: {podCIDRs: [10.77.0.0/24, "fd77:1::/64"]},
  status: {addresses: [{type: InternalIP, address: 192.168.77.1}, {type: InternalIP, address: "fd77::1"}]}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: x}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {namespace: x, name: only-from-b}, spec: {podSelector: {matchLabels: {pod: a}},
  ingress: [{from: [{podSelector: {matchLabels: {pod: b}}}]}]}}
`

// cniPlugins builds the plugins once and returns their directory.
var cniPlugins = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(buildDir, "plugins")
	return dir, errors.Join(os.Mkdir(dir, 0o755), cnitest.Build(dir), cnitest.BuildMakers(dir))
})

func newCNINode(t *testing.T, backend string) *cniNode {
	t.Helper()
	n := newBareNode(t, backend)
	n.source = []string{"--manifests", n.manifests}
	n.apply(cniCluster)
	n.start()
	return n
}

// newBareNode returns a node with Open vSwitch, without an agent.
func newBareNode(t *testing.T, backend string) *cniNode {
	t.Helper()
	n := newEmptyNode(t, backend)
	ovsDir, err := ovsdaemon.TempDir()
	n.must(err)
	t.Cleanup(func() { os.RemoveAll(ovsDir) })
	n.ovs, err = ovsdaemon.Start(t.Context(), ovsdaemon.Options{Dir: ovsDir, NetNS: n.ns.Path()})
	n.must(err)
	t.Cleanup(func() { n.must(n.ovs.Stop()) })
	n.flags = []string{"--ovs-run-dir", n.ovs.Dir(), "--datapath", "netdev", "--cni-plugin-dir", n.Plugins}
	return n
}

// newEmptyNode returns a node without Open vSwitch and agent.
func newEmptyNode(t *testing.T, backend string) *cniNode {
	t.Helper()
	return newNamedNode(t, backend, "node")
}

// newNamedNode returns a node like newEmptyNode, beside others of the test.
func newNamedNode(t *testing.T, backend, name string) *cniNode {
	t.Helper()
	needLab(t)
	n := &cniNode{T: t, dir: t.TempDir(), backend: backend}
	n.manifests = filepath.Join(n.dir, "manifests")
	plugins, err := cniPlugins()
	n.must(err)
	n.Runtime = cnitest.Runtime{Plugins: plugins, Socket: filepath.Join(n.dir, "run", "cni.sock")}
	n.must(os.Mkdir(n.manifests, 0o755))
	n.ns = n.space(name)
	n.must(n.ns.Do(uplinkOfNode))
	return n
}

// uplinkOfNode gives the node's namespace an interface with its address.
func uplinkOfNode() error {
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "far0"}
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	for _, line := range []string{
		"link set lo up", "link set far0 up", "link set eth0 up", "addr add 192.168.77.1/24 dev eth0", "addr add fd77::1/64 dev eth0 nodad",
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}

func (n *cniNode) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

func (n *cniNode) space(name string) *namespace.Namespace {
	n.Helper()
	ns, err := namespace.Create(fmt.Sprintf("flx-e2ecni-%s-%s", uniqueName(n.T), name))
	n.must(err)
	n.Cleanup(func() {
		ns.Close()
		n.must(namespace.Delete(ns.Name()))
	})
	return ns
}

// apply adds pods, and the objects in the text, to the node's manifests.
func (n *cniNode) apply(text string, pods ...string) {
	n.Helper()
	for _, p := range pods {
		text += fmt.Sprintf("\n---\n{apiVersion: v1, kind: Pod, metadata: {namespace: x, name: %s, uid: uid-%s, labels: {pod: %s}}, spec: {nodeName: n1}}\n", p, p, p)
	}
	temporary := filepath.Join(n.dir, "new.yaml")
	n.must(os.WriteFile(temporary, []byte(text), 0o600))
	files, err := os.ReadDir(n.manifests)
	n.must(err)
	n.must(os.Rename(temporary, filepath.Join(n.manifests, fmt.Sprintf("%03d.yaml", len(files)))))
}

// start starts the agent in a private mount namespace: host-local keeps its reservations
// at one place on a machine.
func (n *cniNode) start() {
	n.Helper()
	log, err := os.OpenFile(filepath.Join(n.dir, "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	n.must(err)
	defer log.Close()
	cni := filepath.Join(n.dir, "varlibcni")
	n.must(os.MkdirAll(cni, 0o755))
	n.agent = exec.Command("unshare", slices.Concat([]string{
		"--mount", "--propagation", "slave", "sh", "-c",
		`mount -t tmpfs none /var/lib && mkdir /var/lib/cni && mount --bind "$0" /var/lib/cni && exec "$@"`, cni,
		filepath.Join(buildDir, lab.AgentProgram), "--node-name", "n1", "--backend", n.backend,
		"--run-dir", filepath.Dir(n.Socket), "--health-address", "", "--log-level", "debug",
	}, n.flags, n.source)...)
	n.agent.Stdout, n.agent.Stderr = log, log
	n.must(n.ns.Do(n.agent.Start))
	n.Cleanup(func() { n.stop(syscall.SIGKILL) })
}

func (n *cniNode) stop(signal syscall.Signal) {
	if n.agent == nil {
		return
	}
	_ = n.agent.Process.Signal(signal)
	_ = n.agent.Wait() // it was ended by the signal
	n.agent = nil
	if n.Failed() {
		text, _ := os.ReadFile(filepath.Join(n.dir, "agent.log"))
		const most = 6000
		n.Logf("agent's log:\n%s", text[max(0, len(text)-most):])
	}
}

func (n *cniNode) call(command string, s cnitest.Sandbox, extra map[string]any) cnitest.Reply {
	n.Helper()
	got, err := n.Call(n.Context(), command, "1.1.0", s, extra)
	n.must(err)
	return got
}

func (n *cniNode) ok(command string, s cnitest.Sandbox, extra map[string]any) cnitest.Reply {
	n.Helper()
	got := n.call(command, s, extra)
	if got.Failed {
		n.Fatalf("%s of %s: %s", command, s.ID, got.Raw)
	}
	return got
}

func (n *cniNode) sandbox(id, pod string) cnitest.Sandbox {
	n.Helper()
	return cnitest.Sandbox{ID: id, Namespace: "x", Pod: pod, UID: "uid-" + pod, Interface: "eth0", NS: n.space(id)}
}

// reach reports whether a connection gets from one sandbox to the other's port 80,
// over both families. One that has to is given patience.
func (n *cniNode) reach(from, to cnitest.Sandbox, source, target cnitest.Reply, patient time.Duration) string {
	n.Helper()
	a, b := labprobe.NewStation(from.NS), labprobe.NewStation(to.NS)
	defer a.Close()
	defer b.Close()
	var flows []labprobe.Flow
	for i := range target.IPs {
		src, _ := netip.AddrFromSlice(source.IPs[i].Address.IP)
		dst, _ := netip.AddrFromSlice(target.IPs[i].Address.IP)
		at := netip.AddrPortFrom(dst.Unmap(), 80)
		n.must(b.Serve(model.TCP, at))
		flows = append(flows, labprobe.Flow{From: a, Source: src.Unmap(), Target: at, Protocol: model.TCP})
	}
	got := ""
	for _, o := range labprobe.Run(n.Context(), flows, labprobe.Options{Timeout: patient}) {
		n.must(o.Err)
		got += map[bool]string{true: "1", false: "0"}[o.Through]
	}
	return got
}

// left describes the state of pods on the node.
func (n *cniNode) left() string {
	n.Helper()
	var links []string
	n.must(n.ns.Do(func() error {
		all, err := listing.Whole(netlink.LinkList)
		for _, l := range all {
			if strings.HasPrefix(l.Attrs().Name, model.PodInterfacePrefix) {
				links = append(links, l.Attrs().Name)
			}
		}
		return err
	}))
	addresses, _, err := cnitest.Reserved(filepath.Join(n.dir, "varlibcni", "networks", "felixlike"))
	n.must(err)
	return fmt.Sprintf("interfaces %v, ports %v, addresses %v", links, n.ports(), addresses)
}

// ports returns the pods' ports on the bridge, sorted.
func (n *cniNode) ports() []string {
	n.Helper()
	all := strings.Fields(n.run("ovs-vsctl", "--db=unix:"+n.ovs.DBSocket(), "--bare", "--columns=name", "find", "interface", "external_ids:felixlike-pod-namespace=x"))
	slices.Sort(all)
	return all
}

// flows counts the flows of the bridge.
func (n *cniNode) flows() int {
	n.Helper()
	return strings.Count(n.run("ovs-ofctl", "-O", "OpenFlow15", "dump-flows", "unix:"+filepath.Join(n.ovs.Dir(), "br-int.mgmt")), "cookie=")
}

func (n *cniNode) run(name string, args ...string) string {
	n.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		n.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}
