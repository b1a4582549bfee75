package cluster

import (
	"bufio"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/cluster/kubelab"
	"github.com/felixlike/felixlike/test/lab/probe"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// readyTime bounds the time until pods are ready on a busy machine.
const readyTime = 2 * time.Minute

// pod is a running pod, and its network as seen from this process.
type pod struct {
	corev1.Pod
	station *probe.Station
}

// address returns the pod's address of a family.
func (p *pod) address(f model.Family) netip.Addr {
	all := kubelab.Addresses(&p.Pod)
	if i := slices.IndexFunc(all, func(a netip.Addr) bool { return a.Is4() == (f == model.IPv4) }); i >= 0 {
		return all[i]
	}
	return netip.Addr{}
}

// sleeper is the manifest of a pod that does nothing; its servers are in this
// process.
func sleeper(ns, name, node string, labels ...string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {namespace: %s, name: %s, labels: {%s}}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: "kubelab.local/pause:1"}]
`, ns, name, strings.Join(append([]string{"pod: " + name}, labels...), ", "), node)
}

// start applies manifests and returns all pods of the namespace by name, when they
// are ready.
func (s *site) start(t *testing.T, ns, manifests string) map[string]*pod {
	t.Helper()
	s.apply(t, manifests)
	return s.ready(t, ns)
}

// ready waits until all pods of a namespace are, and opens them.
func (s *site) ready(t *testing.T, ns string) map[string]*pod {
	t.Helper()
	s.kubectl(t, "wait", "-n", ns, "--for=condition=Ready", "pod", "--all", "--timeout="+readyTime.String())
	found, err := s.Pods(t.Context(), ns, "")
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]*pod{}
	for _, p := range found {
		in, err := s.Open(&p)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(in.Close)
		pods[p.Name] = &pod{Pod: p, station: station(t, in)}
	}
	return pods
}

// station returns a station that is closed with the test.
func station(t *testing.T, in *namespace.Namespace) *probe.Station {
	t.Helper()
	st := probe.NewStation(in)
	t.Cleanup(func() { st.Close() })
	return st
}

// open returns the network of a node, or of the control plane's.
func open(t *testing.T, name string) *namespace.Namespace {
	t.Helper()
	in, err := namespace.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.Close)
	return in
}

// serve has a pod echo on a port, by TCP and UDP, over both families.
func (p *pod) serve(t *testing.T, port uint16) {
	t.Helper()
	for _, f := range model.Families() {
		for _, proto := range []model.Protocol{model.TCP, model.UDP} {
			if a := p.address(f); a.IsValid() {
				if err := p.station.Serve(proto, netip.AddrPortFrom(a, port)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// flows are the probes from a pod to another one, over both families.
func (p *pod) flows(to *pod, port uint16) []probe.Flow {
	var all []probe.Flow
	for _, f := range model.Families() {
		for _, proto := range []model.Protocol{model.TCP, model.UDP} {
			if p.address(f).IsValid() && to.address(f).IsValid() {
				all = append(all, probe.Flow{From: p.station, Source: p.address(f), Target: netip.AddrPortFrom(to.address(f), port), Protocol: proto})
			}
		}
	}
	return all
}

// expect fails the test unless all, or none, of the flows get through. Policies
// are in force a moment after the API server lists them, so expect waits for the result,
// which then must stay.
func expect(t *testing.T, through bool, what string, flows []probe.Flow) {
	t.Helper()
	if len(flows) == 0 {
		t.Errorf("%s: nothing to probe", what)
	}
	timeout := probe.DefaultTimeout
	if through {
		timeout = throughTime
	}
	wrong := func() error {
		for i, o := range probe.Run(t.Context(), flows, probe.Options{Timeout: timeout}) {
			if o.Err != nil || o.Through != through {
				return fmt.Errorf("%s: %s %s -> %s: through %v (%s), want %v", what, flows[i].Protocol, flows[i].Source, flows[i].Target, o.Through, o.Reason, through)
			}
		}
		return nil
	}
	until(t, time.Minute, wrong)
	if through { // an answer may be late
		timeout = patience
	}
	if err := wrong(); err != nil {
		t.Errorf("it did not stay: %v", err)
	}
}

// serveName answers each connection with the pod's name and the client's address,
// in a line.
func (p *pod) serveName(t *testing.T, port uint16) {
	t.Helper()
	for _, f := range model.Families() {
		if p.address(f).IsValid() {
			serveNameAt(t, p.station.Namespace(), netip.AddrPortFrom(p.address(f), port), p.Name)
		}
	}
}

// serveNameAt answers each connection with a name and the client's address, in a line.
func serveNameAt(t *testing.T, in *namespace.Namespace, at netip.AddrPort, name string) {
	t.Helper()
	listener := listen(t, in, at)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(conn, name, conn.RemoteAddr())
			conn.Close()
		}
	}()
}

// visit connects and returns the server's name and the source that it saw.
func visit(from *namespace.Namespace, to netip.AddrPort, timeout time.Duration) (server string, source netip.Addr, err error) {
	conn, err := traffic.Connect(from, netip.Addr{}, to, timeout)
	if err != nil {
		return "", netip.Addr{}, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", netip.Addr{}, err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return "", netip.Addr{}, err
	}
	server, text, _ := strings.Cut(strings.TrimSpace(line), " ")
	at, err := netip.ParseAddrPort(text)
	return server, at.Addr().Unmap(), err
}
