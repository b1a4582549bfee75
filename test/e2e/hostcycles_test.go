package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/hosts/boot"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

// hostCycles is the number of cycles of TestHostCycles, hostAway how long the API server is away in one of them.
var (
	hostCycles = flag.Int("host-cycles", 10, "disturb the nodes so often in TestHostCycles")
	hostAway   = flag.Duration("host-away", 3*time.Second, "how long the API server is away in TestHostCycles")
)

// The ports of TestHostCycles: sshd's, one that no policy allows, and the API server's.
const (
	cyclesSSH, cyclesClosed = "22", "7778"
	cyclesAPI               = "192.168.99.1:6443"
)

// TestHostCycles: while a policy denies all packets to and from two nodes, their agents are killed, their labels and other policies for nodes change, the
// API server goes away, and the nodes lose all rules and boot. No denied packet passes once the policy is confirmed, in either family, sessions by ssh live on, new ones
// begin, and the agents reach the API server and confirm the policies in the end.
func TestHostCycles(t *testing.T) {
	t.Parallel()
	w := newCycles(t, cyclesAPI)
	open := 0
	eventually.True(t, "without a policy, all ways are open, and counted", func() bool { // the first packet may wait for a neighbour's address
		open = 0
		w.tryDenied(func(string) { open++ }, w.nodes...)
		return open == 8 && w.begun() >= 8
	}, func() string { return fmt.Sprintf("%d of 8", open) })
	w.flip(0)
	w.set("all", "{priority: 5, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop}], egress: [{action: Drop}]}")
	for _, n := range w.nodes {
		n.start()
	}
	w.confirmed("the first policy")
	before := w.begun()
	w.denied.Store(0)
	stop := sync.OnceFunc(func() {
		close(w.done)
		w.watching.Wait()
	})
	defer stop() // also when the test gives up: they report to it
	for _, n := range w.nodes {
		w.watch(n)
	}
	random := seeded.Rand(t, "cycles")
	did := map[string]int{}
	for i := range *hostCycles {
		n := w.nodes[random.IntN(len(w.nodes))]
		// All of them come, however few cycles there are.
		what := []string{"kill", "label", "flip", "away", "boot"}[i%5]
		switch what {
		case "kill":
			n.stop(syscall.SIGKILL)
			n.start()
		case "label":
			w.label(n, i)
		case "flip":
			w.flip(i + 1)
		case "away":
			w.flip(i + 1) // often in its trial
			if random.IntN(2) == 0 {
				w.confirmed("a change before the API server goes away")
			}
			w.server.Stop()
			time.Sleep(*hostAway)
			n.must(w.hub.Do(w.server.Start))
		case "boot":
			n.boot()
		}
		did[what]++
		w.confirmed(fmt.Sprintf("cycle %d, %s of %s", i, what, n.name))
		if t.Failed() {
			break
		}
	}
	stop()
	if passed := w.begun() - before; passed > 0 {
		t.Errorf("%d denied packets left a node", passed)
	}
	t.Logf("%v; %d denied connections tried, %d sessions by ssh begun", did, w.denied.Load(), w.began.Load())
	if w.denied.Load() == 0 || w.began.Load() == 0 {
		t.Error("nothing was tried")
	}
}

// cycles are two nodes, and a host between them with the API server.
type cycles struct {
	*testing.T
	nodes  []*cycleNode
	hub    *namespace.Namespace
	server *kubernetestest.Server
	admin  *kubernetes.Clientset
	any    dynamic.Interface
	// denied and began count connections that were tried, and sessions.
	denied, began atomic.Int32
	done          chan struct{}
	watching      sync.WaitGroup
	// ports are those of the policies of the last flip, of all nodes and of labelled ones; zero before.
	ports [2]int
}

// cycleNode is one of the nodes, with its addresses and those of the host on their link.
type cycleNode struct {
	*cniNode
	name, address, far, address6, far6 string
	labelled                           bool
}

// cyclesCounter counts the first packets of connections from nodes to the denied port, and answers of nodes to such packets.
const cyclesCounter = `table inet counted {
	counter begun { }
	chain input {
		type filter hook input priority 0
		tcp dport ` + cyclesClosed + ` tcp flags & syn == syn counter name begun
		tcp sport ` + cyclesClosed + ` tcp flags & syn == syn counter name begun
	}
}`

func newCycles(t *testing.T, api string) *cycles {
	w := &cycles{T: t, done: make(chan struct{})}
	for i := range 2 {
		name := fmt.Sprintf("n%d", i+1)
		n := &cycleNode{cniNode: newNamedNode(t, config.NFTables, name), name: name, address: fmt.Sprintf("192.168.9%d.1", i), far: fmt.Sprintf("192.168.9%d.2", i), address6: fmt.Sprintf("fd9%d::1", i), far6: fmt.Sprintf("fd9%d::2", i)}
		if w.hub == nil {
			w.hub = n.space("hub")
			n.must(w.hub.Do(func() error {
				return exec.Command("sh", "-ec", "ip link set lo up; ip addr add 192.168.99.1/32 dev lo; nft '"+cyclesCounter+"'").Run()
			}))
		}
		n.must(n.ns.Do(func() error {
			script := fmt.Sprintf("ip link add up0 type veth peer name %[1]s netns %[2]s && ip addr add %[3]s/24 dev up0 && ip link set up0 up && ip route add 192.168.99.1 via %[4]s && ip netns exec %[2]s sh -ec 'ip addr add %[4]s/24 dev %[1]s; ip link set %[1]s up; ip addr add %[6]s/64 dev %[1]s nodad' && sysctl -qw net.ipv6.conf.up0.keep_addr_on_down=1 && ip addr add %[5]s/64 dev up0 nodad",
				n.name, w.hub.Name(), n.address, n.far, n.address6, n.far6)
			if out, err := exec.Command("sh", "-ec", script).CombinedOutput(); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}))
		w.nodes = append(w.nodes, n)
	}
	var err error
	if w.server, w.admin, err = kubernetestest.ListenIn(w.hub, api); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.server.Stop)
	c := w.server.Config("admin")
	c.Dial = func(_ context.Context, network, _ string) (net.Conn, error) {
		return dialIn(w.hub, network, api, patience)
	}
	if w.any, err = dynamic.NewForConfig(c); err != nil {
		t.Fatal(err)
	}
	for i, n := range w.nodes {
		prefix := fmt.Sprintf("10.7%d.0.0/24", i)
		_, err := w.admin.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: n.name}, Spec: corev1.NodeSpec{PodCIDR: prefix, PodCIDRs: []string{prefix}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: n.address}}},
		}, metav1.CreateOptions{})
		n.must(err)
		n.useAPI(api)
		n.flags = []string{"--traffic-mode", "networkPolicyOnly", "--node-name", n.name, "--state-dir", filepath.Join(n.dir, "state")}
		echoIn(t, n.ns, cyclesSSH)
		echoIn(t, n.ns, cyclesClosed)
	}
	echoIn(t, w.hub, cyclesClosed)
	return w
}

func dialIn(ns *namespace.Namespace, network, address string, timeout time.Duration) (conn net.Conn, err error) {
	err = ns.Do(func() (err error) {
		conn, err = net.DialTimeout(network, address, timeout)
		return err
	})
	return conn, err
}

// set creates a policy for nodes, or changes it.
func (w *cycles) set(name, spec string) {
	w.Helper()
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(spec), &fields); err != nil {
		w.Fatal(err)
	}
	version := antrea.GroupVersion()
	client := w.any.Resource(schema.GroupVersionResource{Group: version.Group, Version: version.Version, Resource: antrea.KindClusterNetworkPolicy.Resource()})
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": version.String(), "kind": antrea.KindClusterNetworkPolicy.String(), "metadata": map[string]any{"name": name}, "spec": fields,
	}}
	_, err := client.Update(w.Context(), object, metav1.UpdateOptions{})
	if err != nil {
		_, err = client.Create(w.Context(), object, metav1.CreateOptions{})
	}
	if err != nil {
		w.Fatal(err)
	}
}

// flip gives the nodes another policy than before. None of them allows what is tried.
func (w *cycles) flip(i int) {
	w.Helper()
	w.ports = [2]int{9000 + i, 19000 + i}
	w.set("flip", fmt.Sprintf("{priority: 1, appliedTo: [{nodeSelector: {}}], ingress: [{action: Allow, ports: [{protocol: TCP, port: %d}]}, {action: Reject, from: [{ipBlock: {cidr: 203.0.113.0/24}}]}]}", w.ports[0]))
	w.set("labelled", fmt.Sprintf("{priority: 2, appliedTo: [{nodeSelector: {matchLabels: {extra: 'true'}}}], egress: [{action: Drop, ports: [{protocol: TCP, port: %d}]}]}", w.ports[1]))
}

// label changes the labels of a node: a policy begins or ceases to apply to it.
func (w *cycles) label(n *cycleNode, i int) {
	w.Helper()
	node, err := w.admin.CoreV1().Nodes().Get(w.Context(), n.name, metav1.GetOptions{})
	n.must(err)
	n.labelled = !n.labelled
	node.Labels = map[string]string{"extra": fmt.Sprint(n.labelled), "cycle": fmt.Sprint(i)}
	_, err = w.admin.CoreV1().Nodes().Update(w.Context(), node, metav1.UpdateOptions{})
	n.must(err)
}

// boot ends the agent of a node, and has the node lose all rules and load them before it is on the network again.
func (n *cycleNode) boot() {
	n.Helper()
	n.stop(syscall.SIGKILL)
	n.must(n.ns.Do(func() error {
		// Without the interface: packets that wait for a neighbour's address would have been judged before.
		script := `ip link set up0 down; nft flush ruleset; "$0" "$@"; ip link set up0 up; ip route add 192.168.99.1 via ` + n.far
		out, err := exec.Command("sh", "-ec", script, filepath.Join(n.Plugins, "felixlike-cni"), boot.Command, filepath.Join(n.dir, "state", "hosts")).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "that were confirmed last are in force") {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	}))
	n.start()
}

// confirmed waits until the agents have confirmed their policies: the changes of a cycle too.
func (w *cycles) confirmed(when string) {
	w.Helper()
	for _, n := range w.nodes {
		state := ""
		eventually.True(w.T, when+": "+n.name+" confirms its policies", func() bool {
			inTable := n.hasLast(w.ports) // before the state: until the agent knows the change, the last policies are confirmed
			s, err := n.control().Status(w.Context())
			if err != nil || s.Hosts == nil {
				state = fmt.Sprint(err)
				return false
			}
			state = s.Hosts.State + " " + s.Hosts.Reason
			return inTable && s.Hosts.State == control.HostsConfirmed
		}, func() string { return state })
	}
}

// hasLast reports whether the table of a node has the policies of the last flip that apply to it.
func (n *cycleNode) hasLast(ports [2]int) bool {
	if ports[0] == 0 {
		return true
	}
	var table []byte
	n.must(n.ns.Do(func() error {
		table, _ = exec.Command("nft", "list", "table", "inet", "felixlike-hosts").Output() // there is none before the first policy
		return nil
	}))
	has := func(port int) bool { return strings.Contains(string(table), fmt.Sprintf("tcp dport %d ", port)) }
	return has(ports[0]) && has(ports[1]) == n.labelled
}

// begun returns how many packets the host has counted.
func (w *cycles) begun() (packets int) {
	w.Helper()
	err := w.hub.Do(func() error {
		out, err := exec.Command("nft", "list", "counter", "inet", "counted", "begun").Output()
		if err == nil {
			_, rest, _ := strings.Cut(string(out), "packets ")
			_, err = fmt.Sscan(rest, &packets)
		}
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return packets
}

// tryDenied tries the denied port from and to nodes, in both families, and calls f with each way that is open.
func (w *cycles) tryDenied(f func(to string), nodes ...*cycleNode) {
	for _, n := range nodes {
		for to, from := range map[string]*namespace.Namespace{n.address: w.hub, n.address6: w.hub, n.far: n.ns, n.far6: n.ns} {
			w.denied.Add(1)
			if conn, err := dialIn(from, "tcp", net.JoinHostPort(to, cyclesClosed), 100*time.Millisecond); err == nil {
				conn.Close()
				f(to)
			}
		}
	}
}

// watch tries what is denied at a node, keeps one session by ssh, and begins others, until the test is over.
func (w *cycles) watch(n *cycleNode) {
	session, err := dialIn(w.hub, "tcp", n.address+":"+cyclesSSH, patience)
	n.must(err)
	w.Cleanup(func() { session.Close() })
	w.repeat(func() {
		w.tryDenied(func(to string) { w.Errorf("a denied connection to %s passed", to) }, n)
	})
	w.repeat(func() {
		if err := answers(session); err != nil {
			w.Errorf("the session by ssh to %s: %v", n.name, err)
		}
		conn, err := dialIn(w.hub, "tcp", n.address+":"+cyclesSSH, patience)
		if err != nil {
			w.Errorf("locked out of %s: %v", n.name, err)
			return
		}
		w.began.Add(1)
		if err := answers(conn); err != nil {
			w.Errorf("locked out of %s: %v", n.name, err)
		}
		conn.Close()
		time.Sleep(50 * time.Millisecond)
	})
}

// repeat runs a function again and again until the test is over or fails.
func (w *cycles) repeat(f func()) {
	w.watching.Go(func() {
		for !w.Failed() {
			select {
			case <-w.done:
				return
			default:
				f()
			}
		}
	})
}

// answers reports whether an echo comes back.
func answers(conn net.Conn) error {
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}
