package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdaemon"
	"github.com/felixlike/felixlike/test/bench/workload"
)

// tenants makes a process an agent of many tenants; it names the backend and the switch.
const tenants = "FELIXLIKE_BENCH_TENANTS"

func TestMain(m *testing.M) {
	if task := os.Getenv(tenants); task != "" {
		if err := isolate([]byte(task)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// isolated is what BenchmarkIsolation has a process measure: the first load, then changes, as medians.
type isolated struct {
	Load, Join, Namespace Phase
	// Slowest is the slowest join.
	Slowest time.Duration
}

// The sizes: namespaces with a number each and a pod on another node, and those that have one on this node, too.
const (
	tenantNamespaces = 5000
	localNamespaces  = 250
	samples          = 20
)

func tenantPod(i int, name, on, address string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: tenantName(i), Name: name}, Spec: corev1.PodSpec{NodeName: on},
		Status: corev1.PodStatus{PodIP: address, PodIPs: []corev1.PodIP{{IP: address}}},
	}
}

func tenantName(i int) string { return fmt.Sprintf("tenant-%04d", i) }

func tenantEvents(i int) []datastore.Event {
	return []datastore.Event{
		datastore.NamespaceSet{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenantName(i)}}},
		datastore.PodSet{Pod: tenantPod(i, "away", "node2", fmt.Sprintf("10.20.%d.%d", i/250, 2+i%250))},
		numbered(i, int64(i+1)),
	}
}

func numbered(i int, number int64) datastore.AntreaSet {
	return datastore.AntreaSet{Object: &antrea.NetNamespace{ObjectMeta: metav1.ObjectMeta{Name: tenantName(i)}, NetName: tenantName(i), NetID: &number}}
}

// local returns the pod of a namespace on this node.
func local(i int) (datastore.Event, model.Attachment) {
	p := tenantPod(i, "here", workload.Node, fmt.Sprintf("10.10.%d.%d", i/250, 2+i%250))
	return datastore.PodSet{Pod: p}, model.Attachment{
		Pod: model.PodID{Namespace: p.Namespace, Name: p.Name}, Interface: fmt.Sprintf("%s%04d", model.PodInterfacePrefix, i),
		OFPort: uint32(10 + i), MAC: net.HardwareAddr{0x0a, 0, 0, 0, byte(i >> 8), byte(i)}, Addresses: []netip.Addr{netip.MustParseAddr(p.Status.PodIP)},
	}
}

func tenantNode(name, address, cidr string) datastore.Event {
	return datastore.NodeSet{Node: &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}},
	}}
}

// isolate measures a backend in this process, and writes the result.
func isolate(data []byte) error {
	var task struct {
		Backend string
		Switch  Switch
	}
	if err := json.Unmarshal(data, &task); err != nil {
		return err
	}
	b, err := FindBackend(task.Backend)
	if err != nil {
		return err
	}
	under, err := b.New(task.Switch)
	if err != nil {
		return err
	}
	events := []datastore.Event{tenantNode(workload.Node, "192.168.50.10", "10.10.0.0/16"), tenantNode("node2", "192.168.50.11", "10.20.0.0/16")}
	var attached []model.Attachment
	for i := range tenantNamespaces {
		events = append(events, tenantEvents(i)...)
	}
	for i := range localNamespaces {
		e, a := local(i)
		events, attached = append(events, e), append(attached, a)
	}
	ctx := context.Background()
	a := startSource(ctx, under, sourceOf(attached, events), task.Switch, true)
	first, err := a.next(ctx, func(p pass) bool { return p.updates >= localNamespaces })
	if err != nil {
		return err
	}
	out := isolated{Load: first.done.since(a.begin)}
	change := func(send func()) (Phase, error) {
		var begin mark
		p, wall, err := a.change(ctx, func() {
			begin = task.Switch.now()
			send()
		})
		return Phase{Wall: wall, CPU: p.done.cpu.Minus(begin.cpu)}, err
	}
	if out.Join, err = medianOf(func(i int) (Phase, error) {
		// A namespace with a pod here joins one without, and leaves it.
		number := int64(localNamespaces + i/2 + 1)
		if i%2 == 1 {
			number = int64(i/2 + 1)
		}
		p, err := change(func() { a.source.send(numbered(i/2, number)) })
		out.Slowest = max(out.Slowest, p.Wall)
		return p, err
	}); err != nil {
		return err
	}
	if out.Namespace, err = medianOf(func(i int) (Phase, error) {
		i += tenantNamespaces
		e, at := local(i)
		if _, _, err := a.change(ctx, func() { a.source.update(model.AttachmentUpdate{Attachment: &at}) }); err != nil {
			return Phase{}, err
		}
		return change(func() { a.source.send(append(tenantEvents(i), e)...) })
	}); err != nil {
		return err
	}
	if err := a.close(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

func medianOf(sample func(i int) (Phase, error)) (Phase, error) {
	var all []Phase
	for i := range samples {
		p, err := sample(i)
		if err != nil {
			return Phase{}, err
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Phase) int { return int(a.CPU.Total() - b.CPU.Total()) })
	return all[samples/2], nil
}

// BenchmarkIsolation measures 5,000 isolated namespaces with a number each, 250 of them with a pod on this node: the first load, a join of two
// of them, and a new namespace with its first pod here. Run it with -benchtime 1x.
func BenchmarkIsolation(b *testing.B) {
	for _, backend := range Backends() {
		b.Run(backend.Name, func(b *testing.B) {
			for b.Loop() {
				u := measureIsolation(b, backend)
				b.ReportMetric(u.Load.CPU.Total().Seconds(), "load-cpu-s")
				b.ReportMetric(u.Load.Wall.Seconds(), "load-s")
				b.ReportMetric(float64(u.Join.CPU.Total().Microseconds())/1000, "join-cpu-ms")
				b.ReportMetric(float64(u.Slowest.Microseconds())/1000, "join-worst-ms")
				b.ReportMetric(float64(u.Namespace.CPU.Total().Microseconds())/1000, "namespace-cpu-ms")
			}
		})
	}
}

// measureIsolation measures in a process and network namespace of its own.
func measureIsolation(b *testing.B, backend Backend) (u isolated) {
	b.Helper()
	task := map[string]any{"Backend": backend.Name}
	if backend.NeedsSwitch {
		dir, err := ovsdaemon.TempDir()
		if err != nil {
			b.Fatal(err)
		}
		defer os.RemoveAll(dir)
		ns, err := namespace.Anonymous()
		if err != nil {
			b.Fatal(err)
		}
		defer ns.Close()
		var daemons *ovsdaemon.Daemons
		if err := ns.Do(func() (err error) {
			daemons, err = ovsdaemon.Start(b.Context(), ovsdaemon.Options{Dir: dir})
			return err
		}); err != nil {
			b.Fatal(err)
		}
		defer daemons.Stop()
		if out, err := exec.Command("ovs-vsctl", "--db=unix:"+daemons.DBSocket(), "add-br", Bridge, "--", "set", "bridge", Bridge, "datapath_type=netdev", "fail_mode=secure", "protocols=[OpenFlow13,OpenFlow15]").CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		_, vswitchd := daemons.PIDs()
		task["Switch"] = Switch{Dir: dir, PID: vswitchd}
	}
	data, err := json.Marshal(task)
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.CommandContext(b.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), tenants+"="+string(data))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	if err := json.Unmarshal(out, &u); err != nil {
		b.Fatal(err)
	}
	return u
}
