package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/cluster"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/together"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// TestFirstNode: the node of the source translates packets to a Service, also if its endpoints are in the network of nodes. That of the address does,
// if it is a node's.
func TestFirstNode(t *testing.T) {
	o := control.Objects{}
	api := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "api"}}
	api.Spec.Selector, api.Spec.Ports = map[string]string{"app": "api"}, []corev1.ServicePort{{Port: 443}}
	for i := range 3 {
		address := fmt.Sprintf("192.0.2.%d", i+1)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i+1)}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
		p := pod("api-"+n.Name, address, api.Spec.Selector)
		p.Spec.NodeName, p.Spec.HostNetwork = n.Name, true
		o.Nodes, o.Pods = append(o.Nodes, n), append(o.Pods, p)
	}
	web := pod("web", "10.0.0.4", nil)
	web.Spec.NodeName = "n2"
	o.Pods = append(o.Pods, web)
	socket := fakeAgent(t, o, control.Services{})
	for to, want := range map[string][]string{"service:shop/api": {"n2", "n1", "n3"}, "node:n3": {"n3", "n2"}} {
		c, out := &cobra.Command{}, &options{from: "shop/web", to: to}
		out.Flags(c)
		if err := c.ParseFlags([]string{"--socket", socket}); err != nil {
			t.Fatal(err)
		}
		q := &query{options: out, port: port{number: 443, protocol: model.TCP}, services: services{api}}
		if got, err := out.nodesOf(t.Context(), q); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", to, got, err, want)
		}
	}
}

// fakeAgent serves objects and Services at a socket.
func fakeAgent(t *testing.T, o control.Objects, all control.Services) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any = all
		if strings.HasSuffix(r.URL.Path, "/objects") {
			answer = o
		}
		_ = json.NewEncoder(w).Encode(answer)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return socket
}

func parsed(t *testing.T, text string) port {
	t.Helper()
	p, err := parsePort(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestNodePortElsewhere: a node port of a node that does not answer is not traced as a port of the node itself, whose packets pass.
func TestNodePortElsewhere(t *testing.T) {
	o := objects()
	port := control.ServicePort{Protocol: model.TCP, Port: 80, Frontends: []control.ServiceFrontend{{Kind: "nodePort", Address: netip.IPv4Unspecified(), Port: 30080}}}
	agent := control.NewClient(fakeAgent(t, o, control.Services{Proxy: true, Services: []control.Service{{Namespace: "shop", Name: "db", Ports: []control.ServicePort{port}}}}))
	objects, err := cluster.ReadObjects(t.Context(), agent)
	if err != nil {
		t.Fatal(err)
	}
	number := parsed(t, "30080/tcp")
	objects.Nodes = []*cluster.Node{{Agent: agent}}
	for to, want := range map[string]string{"node:n1": "was not asked", "192.0.2.1": "was not asked", "192.0.2.9": ""} {
		out := &options{to: to}
		w := &world{objects, out}
		q := &query{options: out, port: number}
		p, err := w.findProxied(t.Context(), q, end{text: "shop/web", addrs: []netip.Addr{netip.MustParseAddr("10.0.0.4")}})
		if p != nil || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", to, p, err)
		}
	}
}

// TestLiveElsewhere: no packet is put into the bridge here for a pod of another node.
func TestLiveElsewhere(t *testing.T) {
	source := netip.MustParseAddr("10.0.1.4")
	n := cluster.From(cluster.State{})
	n.Site = &trace.Site{Node: "n2", Attachments: []*model.Attachment{{OFPort: 7, Addresses: []netip.Addr{source}}}}
	w := &world{World: &cluster.World{Nodes: []*cluster.Node{{Site: &trace.Site{Node: "n1"}}, n}}}
	p := trace.Packet{Source: source, Destination: netip.MustParseAddr("192.0.2.1"), Protocol: model.TCP, Port: 80}
	if _, err := w.sendLive(t.Context(), p); err == nil || !strings.Contains(err.Error(), "on the node that answers") {
		t.Error(err)
	}
}

// TestHostileState: a state that is no state, says that it is of another node, or is too large, is a gap.
func TestHostileState(t *testing.T) {
	pack := func(text []byte) []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(text); err != nil || z.Close() != nil {
			t.Fatal("gzip into memory")
		}
		return b.Bytes()
	}
	bomb := pack(bytes.Repeat([]byte(" "), maxStates+1))
	in := together.Others{States: map[string][]byte{
		"n1": pack([]byte(`{"model": {"node": "n1"}}`)), "n2": []byte("{}"), "n3": pack([]byte(`{"model": {"node": "n1"}}`)), "n4": bomb, "n5": pack(bytes.Repeat([]byte("["), 20000)),
	}}
	text, err := in.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	o := &options{}
	if err := o.readOthers(bytes.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string]string{"n2": "EOF", "n3": "says that it is", "n4": "more than", "n5": "more than 0 bytes"} {
		if got := o.others.Silent[node]; !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", node, got, want)
		}
	}
	null := cluster.State{Model: control.Model{Node: "n6", Nodes: []*model.Node{nil}}}
	if _, err := cluster.Read(t.Context(), []*cluster.Node{cluster.From(null)}, nil); err == nil || !strings.Contains(err.Error(), "null") {
		t.Errorf("null in a state: %v", err)
	}
	if len(o.others.states) != 1 || o.others.states[0].Model.Node != "n1" {
		t.Errorf("%d states", len(o.others.states))
	}
}
