package cli

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/cluster"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/live"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/servicelist"
	"github.com/felixlike/felixlike/internal/socketapi"
	"github.com/felixlike/felixlike/model"
)

func pod(name, ip string, labels map[string]string, ports ...corev1.ContainerPort) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Ports: ports}}
	p.Status.Phase = corev1.PodRunning
	p.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	return p
}

func objects() control.Objects {
	db := map[string]string{"app": "db"}
	done := pod("done", "10.0.0.9", db)
	done.Status.Phase = corev1.PodSucceeded
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "n1"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
	return control.Objects{
		Nodes: []*corev1.Node{node},
		Pods: []*corev1.Pod{
			pod("db-0", "10.0.0.2", db, corev1.ContainerPort{Name: "pg", ContainerPort: 5432}),
			pod("db-1", "10.0.0.3", db, corev1.ContainerPort{Name: "pg", ContainerPort: 5433}), done, pod("web", "10.0.0.4", nil),
		},
	}
}

const servicesYAML = `
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {namespace: shop, name: db}
  spec: {clusterIP: 10.96.0.7, selector: {app: db}, ports: [{name: sql, port: 5432, targetPort: pg}, {port: 80, protocol: UDP}]}
---
{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: outside}, spec: {ports: [{port: 80}]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: none}}
`

func someServices(t *testing.T) services {
	t.Helper()
	path := filepath.Join(t.TempDir(), "services.yaml")
	if err := os.WriteFile(path, []byte(servicesYAML), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := servicelist.Read(path, nil)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d services, %v", len(all), err)
	}
	piped, err := servicelist.Read("-", strings.NewReader(servicesYAML))
	if diff := cmp.Diff(all, piped); diff != "" || err != nil {
		t.Errorf("from standard input: %v %s", err, diff)
	}
	return all
}

func TestEnds(t *testing.T) {
	all := someServices(t)
	for text, want := range map[string]string{
		"shop/web": "shop/web 10.0.0.4", "ip:10.0.0.4": "shop/web 10.0.0.4", "node:n1": "node:n1 192.0.2.1", "198.51.100.7": "198.51.100.7 198.51.100.7",
		"10.96.0.7": "shop/db 10.96.0.7 service", "service:shop/db": "shop/db service", "shop/db": "shop/db service", "10.0.0.9": "10.0.0.9 10.0.0.9",
	} {
		e, err := findEnd(text, objects(), all)
		got := e.text
		for _, a := range e.addrs {
			got += " " + a.String()
		}
		if e.service != nil {
			got += " service"
		}
		if err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"web": "want namespace/pod", "shop/nobody": "no such pod", "shop/done": "has ended", "node:n9": "no such node", "service:shop/x": "--services", "/x": "want namespace/pod",
	} {
		if _, err := findEnd(text, objects(), all); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", text, err, want)
		}
	}
}

func TestEndpoints(t *testing.T) {
	all := someServices(t)
	for text, want := range map[string]string{"5432/tcp": "shop/db-0:5432 shop/db-1:5433", "sql/tcp": "shop/db-0:5432 shop/db-1:5433", "80/udp": "shop/db-0:80 shop/db-1:80"} {
		p, err := parsePort(text)
		if err != nil {
			t.Fatal(err)
		}
		targets, err := endpoints(all[0], p, objects())
		var got []string
		for _, e := range targets {
			got = append(got, netip.AddrPortFrom(e.addrs[0], e.port).String())
		}
		for i, e := range targets {
			got[i] = e.text + got[i][strings.LastIndex(got[i], ":"):]
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" || err != nil {
			t.Errorf("%s: %v %s", text, err, diff)
		}
	}
	if _, err := endpoints(all[0], port{protocol: model.TCP, number: 9}, objects()); err == nil || !strings.Contains(err.Error(), "5432/tcp 80/udp") {
		t.Errorf("a port that it has not: %v", err)
	}
	if _, err := endpoints(all[1], port{protocol: model.TCP, number: 80}, objects()); err == nil || !strings.Contains(err.Error(), "no selector") {
		t.Errorf("no selector: %v", err)
	}
}

func TestPorts(t *testing.T) {
	for text, want := range map[string]port{
		"80/tcp": {number: 80, protocol: model.TCP}, "udp/53": {number: 53, protocol: model.UDP}, "http/tcp": {name: "http", protocol: model.TCP},
		"icmp": {protocol: model.ICMP}, "9/sctp": {number: 9, protocol: model.SCTP},
	} {
		if got, err := parsePort(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "80", "80/gre", "0/tcp", "70000/tcp", "/tcp", "tcp/"} {
		if got, err := parsePort(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}

// deniedResult is that of a packet which a policy denies.
func deniedResult() *result {
	p := trace.Packet{Source: netip.MustParseAddr("10.0.0.4"), Destination: netip.MustParseAddr("10.0.0.2"), Protocol: model.TCP, Port: 80, Conn: trace.New}
	path := &trace.Path{Packet: p, Fate: trace.Dropped, At: "n1, nftables inet felixlike, chain pods-in", Steps: []trace.Step{
		{Node: "n1", Place: "host", Effect: "in by flx-gw0, routed out by flx-gw0"},
		{
			Node: "n1", Place: "nftables inet felixlike", Table: "chain to-pods", Number: 1, Rule: "ip4 dst vmap @to-pods-4", Effect: "goto pods-in", Comment: "policies of the destination pod",
			Sets: []trace.Membership{{Set: "to-pods-4", Member: "10.0.0.2", Owner: "shop/db-0"}},
		},
		{
			Node: "n1", Place: "nftables inet felixlike", Table: "chain pods-in", Number: 2, Rule: "drop", Effect: "drop", Comment: "isolated ingress",
			Missed: []trace.Miss{{Policy: "networkpolicy/shop/db", PolicyRule: "ingress[0]", Because: "10.0.0.4 (shop/web) is not in set a-4"}},
		},
	}}
	return &result{
		From: "shop/web", To: "shop/db-0", Packet: p, Verdict: denied, Why: "ingress of shop/db-0: isolated by networkpolicy/shop/db, and no rule of theirs allows it",
		Policies: &trace.Judgement{
			Egress: trace.End{Who: "10.0.0.4 (shop/web)", Allowed: true, Why: "no policy isolates the pod"},
			Ingress: trace.End{
				Who: "10.0.0.2 (shop/db-0)", Why: "the pod is isolated and no rule allows it", Isolating: []string{"networkpolicy/shop/db"},
				Asked: []trace.Asked{{Policy: "networkpolicy/shop/db", Rule: "ingress[0]", Because: "shop/web is not in from (pods app=api), any port"}},
			},
		},
		Programmed: []programmed{{Backend: "nftables", Path: path}},
	}
}

// TestAgentBeforeServices: an agent that has no call for Services serves none.
func TestAgentBeforeServices(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(socketapi.ErrorBody{Error: "unknown path " + r.URL.Path, Code: socketapi.UnknownPath})
	})}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	if all, err := servicesOf(t.Context(), &cluster.Node{Agent: control.NewClient(socket)}); err != nil || all.Proxy {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestTextWithoutEndpoint: the text for a packet to a Service that leads it nowhere.
func TestTextWithoutEndpoint(t *testing.T) {
	p := trace.Packet{Source: netip.MustParseAddr("10.0.0.4"), Destination: netip.MustParseAddr("10.96.0.7"), Protocol: model.TCP, Port: 80, Conn: trace.New}
	r := &result{From: "shop/web", To: "10.96.0.7", Packet: p, Service: "shop/db", Verdict: denied, Why: "the table of Services on n1 refuses it: clusterIP 10.96.0.7:80/tcp has no endpoint"}
	const want = "shop/web -> 10.96.0.7   tcp 10.0.0.4 -> 10.96.0.7:80, new connection\nDENIED  the table of Services on n1 refuses it: clusterIP 10.96.0.7:80/tcp has no endpoint\n"
	var b strings.Builder
	if err := printResults(&b, []*result{r}, false); err != nil || b.String() != want {
		t.Errorf("%v\n%s", err, b.String())
	}
	if err := outcome([]*result{r}); !errors.Is(err, ErrDenied) {
		t.Errorf("outcome %v", err)
	}
}

// TestText: the text for a packet that a policy denies, and for a contradiction.
func TestText(t *testing.T) {
	r := deniedResult()
	const want = `shop/web -> shop/db-0   tcp 10.0.0.4 -> 10.0.0.2:80, new connection
DENIED  ingress of shop/db-0: isolated by networkpolicy/shop/db, and no rule of theirs allows it

By the policies
  egress of 10.0.0.4 (shop/web): allowed, no policy isolates the pod
  ingress of 10.0.0.2 (shop/db-0): denied, the pod is isolated and no rule allows it
    networkpolicy/shop/db ingress[0]  no: shop/web is not in from (pods app=api), any port

By programmed state (nftables)
  n1
    host: in by flx-gw0, routed out by flx-gw0
    nftables inet felixlike
      chain to-pods #1  ip4 dst vmap @to-pods-4  -> goto pods-in
          policies of the destination pod
          10.0.0.2 (shop/db-0) is in to-pods-4
      chain pods-in #2  any  -> drop
          isolated ingress
          networkpolicy/shop/db ingress[0] no: 10.0.0.4 (shop/web) is not in set a-4
  => DENIED dropped at n1, nftables inet felixlike, chain pods-in: isolated ingress

Agreed: policies and programmed state.
`
	var b strings.Builder
	if err := printResults(&b, []*result{r}, false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	r.Live = &live.Observed{Known: true, Opinion: trace.Opinion{Through: true, Why: "the packet came to the pod's interface"}}
	r.Disagreement = "it is denied, but the real one came"
	b.Reset()
	if err := printResults(&b, []*result{r}, false); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "DISAGREEMENT: it is denied, but the real one came.") || outcome([]*result{r}) != ErrDisagreement {
		t.Errorf("a contradiction:\n%s", b.String())
	}
	r.Because = "changes wait"
	b.Reset()
	_ = printResults(&b, []*result{r}, false) // to memory
	if !strings.Contains(b.String(), "That is because changes wait.") || outcome([]*result{r}) != ErrDenied {
		t.Errorf("an explained contradiction:\n%s", b.String())
	}
}

// TestHalfOfTheWay: without an answer of the destination's node, the policies decide
// there.
func TestHalfOfTheWay(t *testing.T) {
	p := trace.Packet{Source: netip.MustParseAddr("10.0.0.4"), Destination: netip.MustParseAddr("10.0.1.2"), Protocol: model.TCP, Port: 80, Conn: trace.New}
	path := &trace.Path{Packet: p, Fate: trace.ToPeer, At: "n2", Egress: true}
	for _, through := range []bool{true, false} {
		r := &result{Policies: &trace.Judgement{
			Opinion: trace.Opinion{Through: through, Why: "by the policies"}, Egress: trace.End{Allowed: true}, Ingress: trace.End{Allowed: through},
		}}
		(&world{}).verdict(r, path)
		if (r.Verdict == allowed) != through || r.Disagreement != "" || r.Why != "by the policies" {
			t.Errorf("through %v: %+v", through, r)
		}
	}
}

func TestServicesOfNoFile(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, "/dev/zero"} {
		if _, err := servicelist.Read(path, nil); err == nil || !strings.Contains(err.Error(), "not a regular file") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestServiceAddress: without knowledge of Services, trace says nothing about a Service's address: not that its packets are denied.
func TestServiceAddress(t *testing.T) {
	services := netip.MustParsePrefix("10.96.0.0/12")
	for _, m := range []control.Model{{ServiceCIDRs: []netip.Prefix{services}}, {Settings: control.Settings{ServiceCIDRs: []netip.Prefix{services}}}} {
		for text, want := range map[string]bool{"10.96.0.6": true, "192.0.2.1": false} {
			a := netip.MustParseAddr(text)
			err := unknownService(addressEnd(a, control.Objects{}, nil), &m)
			if (err != nil) != want || want && (!strings.Contains(err.Error(), "10.96.0.0/12") || !strings.Contains(err.Error(), "--services")) {
				t.Errorf("%s: %v", text, err)
			}
		}
		known := addressEnd(netip.MustParseAddr("10.96.0.7"), control.Objects{}, someServices(t))
		if err := unknownService(known, &m); err != nil {
			t.Errorf("a known Service: %v", err)
		}
	}
}
