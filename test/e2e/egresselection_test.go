package e2e

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/kubernetestest"
	"github.com/felixlike/felixlike/test/lab"
)

// elected are the Egresses of the test, whose addresses node1 or node2 holds.
var elected = map[model.Family]netip.Addr{model.IPv4: netip.MustParseAddr("192.168.50.100"), model.IPv6: netip.MustParseAddr("fd00:10::c0a8:3264")}

// electedAPI is a lab whose agents have an API server as their datastore.
type electedAPI struct {
	lab   *lab.Lab
	admin *kubernetes.Clientset
}

// serveLab starts an API server on a host outside, with the objects of the lab, and starts the agents anew with it. node1 and node2
// have the label egress.
func serveLab(t *testing.T, l *lab.Lab) *electedAPI {
	t.Helper()
	ns, addr, err := l.Host("ip:203.0.113.10", model.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	address := netip.AddrPortFrom(addr, 6443).String()
	server, admin, err := kubernetestest.ListenIn(ns, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	state, options := l.State(), metav1.CreateOptions{}
	for _, n := range state.Nodes {
		if n = n.DeepCopy(); n.Name != "node3" {
			n.Labels = map[string]string{"egress": ""}
		}
		_, err = admin.CoreV1().Nodes().Create(t.Context(), n, options)
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range state.Namespaces {
		if _, err := admin.CoreV1().Namespaces().Create(t.Context(), o, options); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range state.Pods {
		if _, err := admin.CoreV1().Pods(o.Namespace).Create(t.Context(), o, options); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(l.Dir(), "kubeconfig")
	if err := os.WriteFile(file, kubernetestest.Kubeconfig("agent", address), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, n := range state.Nodes {
		node := l.Node(n.Name)
		if err := node.StopAgent(); err != nil {
			t.Fatal(err)
		}
		node.Settings().Source = []string{"--datastore", "kubernetes", "--kubeconfig", file}
		if err := node.StartAgent(); err != nil {
			t.Fatal(err)
		}
	}
	return &electedAPI{l, admin}
}

// call sends a request about an Egress.
func (a *electedAPI) call(t *testing.T, verb, name, body string) string {
	t.Helper()
	r := a.admin.CoreV1().RESTClient().Verb(verb).AbsPath("/apis/felixlike.io/v1alpha1/egresses"+name).SetHeader("Content-Type", "application/json")
	if body != "" {
		r = r.Body([]byte(body))
	}
	out, err := r.DoRaw(t.Context())
	if err != nil {
		t.Fatalf("%s Egress %s: %v: %s", verb, name, err, out)
	}
	return string(out)
}

// untilStatus waits until the status of an Egress names the node and the address.
func (a *electedAPI) untilStatus(t *testing.T, f model.Family, node string, address netip.Addr) {
	t.Helper()
	eventually.True(t, "the status of out-"+f.String()+" names "+node, func() bool {
		var o struct {
			Status struct {
				EgressNode, EgressIP string
				Conditions           []metav1.Condition
			}
		}
		if err := json.Unmarshal([]byte(a.call(t, "GET", "/out-"+f.String(), "")), &o); err != nil {
			t.Fatal(err)
		}
		s := o.Status
		return s.EgressNode == node && s.EgressIP == address.String() && len(s.Conditions) == 1 && s.Conditions[0].Type == "Assigned" && s.Conditions[0].Status == metav1.ConditionTrue
	})
}

// holder returns the node that has an address on an interface, "" for none. No two ever have it.
func (a *electedAPI) holder(t *testing.T, address netip.Addr) string {
	t.Helper()
	var all []string
	for _, name := range []string{"node1", "node2", "node3"} {
		if strings.Contains(shell(t, a.lab.Node(name), "ip -o address show"), address.String()+"/") {
			all = append(all, name)
		}
	}
	if len(all) > 1 {
		t.Fatalf("%v have %s", all, address)
	}
	return strings.Join(all, "")
}

// sources collects the addresses that a host outside sees a pod with, from new connections one after the other.
type sources struct {
	mu   sync.Mutex
	seen map[string]time.Time
	stop func()
}

func (s *sources) last(address string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[address]
}

func (s *sources) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.seen))
}

func watchSources(t *testing.T, h *outsideHost, ns *namespace.Namespace) *sources {
	s := &sources{seen: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if conn, seen, err := h.connect(t, ns, time.Second); err == nil {
				conn.Close()
				s.mu.Lock()
				s.seen[seen] = time.Now()
				s.mu.Unlock()
			}
			pause(ctx, 50*time.Millisecond)
		}
	}()
	s.stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(s.stop)
	return s
}

// takeover is how long it may take until pods leave again after the agent of the node with their address has died. The Lease takes
// ten seconds of it.
const takeover = 25 * time.Second

// TestEgressElection: one of two nodes has the address of an Egress. When its agent dies, its kernel drops the address, and the
// other node takes it. The host outside sees the pods of all nodes with the address or not at all, and sees those of nodes with an agent again in time. An agent
// that restarts keeps the address, and connections.
func TestEgressElection(t *testing.T) {
	t.Parallel()
	l := newLabWith(t, lab.Config{Backend: config.NFTables})
	set(t, l, state(t, threeNodes))
	a := serveLab(t, l)
	hosts := map[model.Family]*outsideHost{}
	for f, address := range elected {
		hosts[f] = newOutsideHost(t, l, "203.0.113.9", f)
		a.call(t, "POST", "", `{"apiVersion":"felixlike.io/v1alpha1","kind":"Egress","metadata":{"name":"out-`+f.String()+`"},"spec":{"egressIP":"`+address.String()+
			`","nodeSelector":{"matchLabels":{"egress":""}},"appliedTo":{"podSelector":{}}}}`)
	}
	watched := map[model.Family]map[string]*sources{}
	first := map[model.Family]string{}
	for f, address := range elected {
		eventually.True(t, "a node takes "+address.String(), func() bool { first[f] = a.holder(t, address); return first[f] != "" })
		if first[f] == "node3" {
			t.Errorf("node3 has %s without the label", address)
		}
		watched[f] = map[string]*sources{}
		for name, node := range map[string]string{"a": "node1", "c": "node2", "d": "node3"} {
			eventually.True(t, name+" leaves with the address", func() bool {
				_, seen, err := hosts[f].connect(t, l.Pod(pod(name)).Namespace(), time.Second)
				return err == nil && seen == address.String()
			})
			watched[f][node] = watchSources(t, hosts[f], l.Pod(pod(name)).Namespace())
		}
	}
	for f, address := range elected {
		a.untilStatus(t, f, first[f], address)
	}
	died := l.Node(first[model.IPv4])
	killed := time.Now()
	if err := died.KillAgent(); err != nil {
		t.Fatal(err)
	}
	other := map[string]string{"node1": "node2", "node2": "node1"}[died.Name()]
	for f, address := range elected {
		eventually.True(t, "the other node takes "+address.String(), func() bool { return a.holder(t, address) == other })
		taken := time.Now()
		for _, node := range []string{other, "node3"} {
			eventually.True(t, "pods of "+node+" leave again", func() bool { return watched[f][node].last(address.String()).After(taken) })
		}
		t.Logf("IPv%s: %s has %s %s after the agent of %s died, pods leave again after %s", f, other, address, taken.Sub(killed).Round(time.Millisecond), died.Name(), time.Since(killed).Round(time.Millisecond))
	}
	if took := time.Since(killed); took > takeover {
		t.Errorf("it took %s", took)
	}
	held := 0
	for f := range elected { // another node may have been elected for the other family
		if first[f] == died.Name() {
			held++
		}
	}
	eventually.True(t, "the kernel of "+died.Name()+" drops packets with its addresses", func() bool {
		dropped := 0
		for line := range strings.Lines(shell(t, died, "nft list chain inet felixlike-egress egress-guard")) {
			if strings.Contains(line, "saddr @leased-") && !strings.Contains(line, "counter packets 0 ") {
				dropped++
			}
		}
		return dropped >= held // one rule a family
	})
	if err := died.StartAgent(); err != nil {
		t.Fatal(err)
	}
	for f, address := range elected {
		started := time.Now()
		eventually.True(t, "pods of "+died.Name()+" leave again", func() bool { return watched[f][died.Name()].last(address.String()).After(started) })
		for node, s := range watched[f] {
			s.stop()
			if all := s.all(); !slices.Equal(all, []string{address.String()}) {
				t.Errorf("the host outside has seen the pod of %s with %v, not only %s", node, all, address)
			}
		}
	}
	for f, address := range elected {
		a.untilStatus(t, f, other, address)
	}
	a.restart(t, hosts, other)
	for _, f := range model.Families() {
		a.call(t, "DELETE", "/out-"+f.String(), "")
	}
	eventually.True(t, "nothing is left", func() bool {
		leases, err := a.admin.CoordinationV1().Leases("felixlike-system").List(t.Context(), metav1.ListOptions{LabelSelector: "felixlike.io/egress=address"})
		return err == nil && len(leases.Items) == 0 && a.holder(t, elected[model.IPv4]) == "" && a.holder(t, elected[model.IPv6]) == ""
	})
}

// restart restarts the agent of the node with the addresses. Connections go on.
func (a *electedAPI) restart(t *testing.T, hosts map[model.Family]*outsideHost, node string) {
	t.Helper()
	for f, h := range hosts {
		conn, seen, err := h.connect(t, a.lab.Pod(pod("d")).Namespace(), patience)
		if err != nil || seen != elected[f].String() {
			t.Fatalf("seen as %s, %v", seen, err)
		}
		defer talk(t, conn, "after a restart of the agent")
	}
	if err := a.lab.RestartAgent(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	for f := range hosts {
		if now := a.holder(t, elected[f]); now != node {
			t.Errorf("after a restart of the agent %q has %s", now, elected[f])
		}
	}
}
