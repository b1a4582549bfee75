package servicesbench

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/kubeproxy"
	"github.com/felixlike/felixlike/test/kubernetestest"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
	"github.com/felixlike/felixlike/test/measure"
)

var (
	sizes    = flag.String("services", "1000,10000", "numbers of Services, each with 4 endpoints")
	programs = flag.String("programs", "felixlike,nftables,iptables", "who serves them: felixlike, or a mode of kube-proxy")
)

const (
	node       = "node1"
	namespace  = "bench"
	apiAddress = "127.0.0.1:16443"
	port       = 8080
	// felixlike is the name of the agent among the programs.
	felixlike = "felixlike"
	// known is the number of Services whose endpoint is a pod; the other endpoints do not exist.
	known = 16
	// changes and changesTime bound the measured changes of one kind.
	changes, changesTime = 50, 30 * time.Second
	// longest bounds the wait for one thing: what takes longer has no figures.
	longest = 20 * time.Minute
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(m.Run())
}

// figures are one program's at one size: a value a round.
type figures map[string]measure.Series

func (f figures) add(name string, value float64) { f[name] = append(f[name], value) }

// rows are the printed figures in order, with their units.
func rows() []struct{ name, title string } {
	return []struct{ name, title string }{
		{"load-cpu", "first load, CPU-s"},
		{"load", "  until Services answer, s"},
		{"memory", "  peak memory, MB"},
		{"restart-cpu", "restart, CPU-s"},
		{"service-cpu", "one Service, CPU-ms"},
		{"service", "  until it answers, ms"},
		{"endpoint-cpu", "one endpoint, CPU-ms"},
		{"endpoint", "  until it is reached, ms"},
		{"packet", "first packet, us above direct"},
	}
}

// BenchmarkServices prints a table for each size. An iteration is a round: -benchtime 3x gives medians of three.
func BenchmarkServices(b *testing.B) {
	if err := lab.Available(); err != nil {
		b.Skip(err)
	}
	var program string
	if *programs != felixlike {
		var err error
		if program, err = kubeproxy.Measured(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	for text := range strings.SplitSeq(*sizes, ",") {
		size, err := strconv.Atoi(text)
		if err != nil || size < known {
			b.Fatalf("-services: %q is no number of at least %d", text, known)
		}
		names := strings.Split(*programs, ",")
		found := map[string]figures{}
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			clear(found)
			for b.Loop() {
				for _, name := range names {
					if found[name] == nil {
						found[name] = figures{}
					}
					w := newWorld(b, name, program, size)
					w.measure(found[name])
					w.close()
				}
			}
		})
		print(size, names, found)
	}
}

func print(size int, names []string, found map[string]figures) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "%s Services\t", measure.Grouped(int64(size)))
	for _, name := range names {
		if name != felixlike {
			name = "kube-proxy " + name
		}
		fmt.Fprintf(w, "%s\t", name)
	}
	fmt.Fprintln(w)
	for _, row := range rows() {
		fmt.Fprintf(w, "%s\t", row.title)
		for _, name := range names {
			fmt.Fprintf(w, "%s\t", measure.Middle(found[name][row.name], measure.Plain()))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
}

// world is a node with two pods, an API server with Services, and the program that serves them.
type world struct {
	*testing.B
	lab    *lab.Lab
	server *kubernetestest.Server
	admin  *kubernetes.Clientset
	size   int
	// kubeProxy runs instead of the agent unless it is empty.
	kubeProxy kubeproxy.Config
	process   *exec.Cmd
	listeners []net.Listener
}

func newWorld(b *testing.B, name, program string, size int) *world {
	w := &world{B: b, size: size}
	settings := lab.Config{Name: fmt.Sprintf("e2e-%d-services", os.Getpid())}
	if name == felixlike {
		settings.ServiceProxy = config.ServiceProxyFull
	}
	var err error
	w.lab, err = lab.Up(b.Context(), settings)
	w.must(err)
	b.Cleanup(w.close) // after a failure
	w.must(w.lab.SetState(b.Context(), lab.State{
		Nodes: []*corev1.Node{{
			ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: corev1.NodeSpec{PodCIDR: "10.10.0.0/24", PodCIDRs: []string{"10.10.0.0/24"}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.168.77.11"}}},
		}},
		Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: namespace}}},
		Pods:       []*corev1.Pod{pod("a"), pod("b")},
	}))
	for _, name := range []string{"a", "b"} {
		w.serve(name)
	}
	w.server, w.admin, err = kubernetestest.ListenIn(w.node().Namespace(), apiAddress)
	w.must(err)
	w.create()
	if name == felixlike {
		w.must(w.node().StopAgent())
		file := filepath.Join(w.lab.Dir(), "kubeconfig")
		w.must(os.WriteFile(file, kubernetestest.Kubeconfig("agent", apiAddress), 0o600))
		w.node().Settings().Source = []string{"--datastore", "kubernetes", "--kubeconfig", file}
	} else {
		w.kubeProxy = kubeproxy.Config{Program: program, Mode: name, Node: node, API: apiAddress, Dir: b.TempDir(), Pods: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/16")}}
	}
	return w
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{NodeName: node}}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) node() *lab.Node { return w.lab.Node(node) }

// serve has a pod tell its name to whom connects.
func (w *world) serve(name string) {
	p := w.lab.Pod(model.PodID{Namespace: namespace, Name: name})
	var l net.Listener
	w.must(p.Namespace().Do(func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf("%s:%d", p.Address(model.IPv4), port))
		return err
	}))
	w.listeners = append(w.listeners, l)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, name)
			_ = c.Close()
		}
	}()
}

// address returns the cluster IP of a Service.
func address(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte((i + 256) >> 8), byte(i)}), 80)
}

// at returns the address of a pod.
func (w *world) at(name string) string {
	return w.lab.Pod(model.PodID{Namespace: namespace, Name: name}).Address(model.IPv4).String()
}

// objects returns a Service and its endpoints.
func (w *world) objects(i int, endpoints ...string) (*corev1.Service, *discoveryv1.EndpointSlice) {
	name, tcp, number := fmt.Sprint("s", i), corev1.ProtocolTCP, int32(port)
	yes := true
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: address(i).Addr().String(), ClusterIPs: []string{address(i).Addr().String()},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, SessionAffinity: corev1.ServiceAffinityNone,
			Ports: []corev1.ServicePort{{Protocol: tcp, Port: 80}},
		},
	}
	e := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: new(string), Protocol: &tcp, Port: &number}},
	}
	for _, a := range endpoints {
		e.Endpoints = append(e.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}, Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes}})
	}
	return s, e
}

// isKnown reports whether the endpoint of a Service is a pod.
func (w *world) isKnown(i int) bool { return i%(w.size/known) == 0 }

func (w *world) endpoints(i int) []string {
	if w.isKnown(i) {
		return []string{w.at("a")}
	}
	var all []string
	for k := range 4 {
		all = append(all, netip.AddrFrom4([4]byte{10, byte(128 + i>>14), byte(i >> 6), byte(i<<2 | k)}).String())
	}
	return all
}

// create gives the API server all objects.
func (w *world) create() {
	ctx, options := w.Context(), metav1.CreateOptions{}
	state := w.lab.State()
	for _, n := range state.Nodes {
		_, err := w.admin.CoreV1().Nodes().Create(ctx, n, options)
		w.must(err)
	}
	for _, n := range state.Namespaces {
		_, err := w.admin.CoreV1().Namespaces().Create(ctx, n, options)
		w.must(err)
	}
	for _, p := range state.Pods {
		_, err := w.admin.CoreV1().Pods(namespace).Create(ctx, p, options)
		w.must(err)
	}
	for i := range w.size {
		w.add(i, w.endpoints(i)...)
	}
}

func (w *world) add(i int, endpoints ...string) {
	s, e := w.objects(i, endpoints...)
	_, err := w.admin.CoreV1().Services(namespace).Create(w.Context(), s, metav1.CreateOptions{})
	w.must(err)
	_, err = w.admin.DiscoveryV1().EndpointSlices(namespace).Create(w.Context(), e, metav1.CreateOptions{})
	w.must(err)
}

func (w *world) start() {
	if w.kubeProxy.Program == "" {
		w.must(w.node().StartAgent())
		return
	}
	var err error
	w.process, err = w.kubeProxy.Start(w.node().Namespace())
	w.must(err)
}

func (w *world) stop() {
	switch {
	case w.kubeProxy.Program == "":
		w.must(w.node().StopAgent())
	case w.process != nil:
		_ = w.process.Process.Signal(syscall.SIGTERM)
		_ = w.process.Wait()
		w.process = nil
	}
}

func (w *world) close() {
	if w.lab == nil {
		return
	}
	w.stop()
	for _, l := range w.listeners {
		_ = l.Close()
	}
	if w.server != nil {
		w.server.Stop()
	}
	l := w.lab
	w.lab = nil
	w.must(l.Down())
}

func (w *world) used() measure.ProcessUsage {
	pid := w.node().AgentPID()
	if w.process != nil {
		pid = w.process.Process.Pid
	}
	u, err := measure.ProcessUsageOf(pid)
	w.must(err)
	u.CPU += running(pid)
	return u
}

// running returns the processor time of the programs that a process has started and that have not ended.
func running(pid int) (all time.Duration) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list) // its thread may have ended
		for child := range strings.FieldsSeq(string(text)) {
			id, _ := strconv.Atoi(child)
			if u, err := measure.ProcessUsageOf(id); err == nil {
				all += u.CPU + running(id)
			}
		}
	}
	return all
}

// rest waits until the program uses less than a twentieth of a processor, and returns what it has used.
func (w *world) rest() measure.ProcessUsage {
	const look = time.Second
	last := w.used()
	for end := time.Now().Add(longest); ; {
		time.Sleep(look)
		now := w.used()
		if now.CPU-last.CPU < look/20 {
			return last
		}
		if time.Now().After(end) {
			w.Fatalf("the program does not rest within %s", longest)
		}
		last = now
	}
}

// answers returns the name of the pod that answers, or "".
func (w *world) answers(to netip.AddrPort) string {
	c, err := traffic.Connect(w.node().Namespace(), netip.Addr{}, to, 5*time.Millisecond) // what is not served may be lost
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	text, _ := io.ReadAll(c)
	return string(text)
}

// until waits until a pod of that name answers, and reports whether it does.
func (w *world) until(to netip.AddrPort, name string) bool {
	for end := time.Now().Add(longest); w.answers(to) != name; time.Sleep(200 * time.Microsecond) {
		if time.Now().After(end) {
			w.Logf("no answer within %s", longest)
			return false
		}
	}
	return true
}

// measure adds one round.
func (w *world) measure(into figures) {
	start := time.Now()
	w.start()
	for i := range w.size {
		if w.isKnown(i) && !w.until(address(i), "a") {
			return
		}
	}
	into.add("load", time.Since(start).Seconds())
	u := w.rest()
	into.add("load-cpu", u.CPU.Seconds())
	into.add("memory", float64(u.Peak)/1e6)
	w.change(into, "service", func(i int) (netip.AddrPort, string) {
		w.add(w.size+i, w.at("a"))
		return address(w.size + i), "a"
	})
	w.change(into, "endpoint", func(i int) (netip.AddrPort, string) {
		name := []string{"b", "a"}[i%2]
		_, e := w.objects(0, w.at(name))
		_, err := w.admin.DiscoveryV1().EndpointSlices(namespace).Update(w.Context(), e, metav1.UpdateOptions{})
		w.must(err)
		return address(0), name
	})
	w.packets(into)
	w.stop()
	w.start()
	into.add("restart-cpu", w.rest().CPU.Seconds())
}

// change measures changes, each until it is in force.
func (w *world) change(into figures, name string, do func(i int) (netip.AddrPort, string)) {
	before := w.rest()
	var took measure.Series
	begin := time.Now()
	for len(took) < changes && (len(took) < 2 || time.Since(begin) < changesTime) {
		start := time.Now()
		if to, who := do(len(took)); !w.until(to, who) {
			return
		}
		took = append(took, 1e3*time.Since(start).Seconds())
	}
	into.add(name, took.Median())
	into.add(name+"-cpu", 1e3*(w.rest().CPU-before.CPU).Seconds()/float64(len(took)))
}

// packets measures connections of the node to a pod and to a Service of it, in turn.
func (w *world) packets(into figures) {
	service, pod := address(w.size/known), netip.AddrPortFrom(netip.MustParseAddr(w.at("a")), port)
	took := map[netip.AddrPort]measure.Series{}
	for i := range 4000 {
		to := []netip.AddrPort{service, pod}[i%2]
		start := time.Now()
		c, err := traffic.Connect(w.node().Namespace(), netip.Addr{}, to, time.Second)
		if err != nil {
			continue // the kernel bounds them
		}
		took[to] = append(took[to], 1e6*time.Since(start).Seconds())
		_ = c.Close()
	}
	if n := slices.Min([]int{len(took[service]), len(took[pod])}); n < 1900 {
		w.Fatalf("only %d connections", n)
	}
	into.add("packet", took[service].Median()-took[pod].Median())
}
