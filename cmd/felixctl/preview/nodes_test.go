package preview

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

const threeHosts = `
{apiVersion: v1, kind: Node, metadata: {name: n1, labels: {role: worker}}, spec: {podCIDR: 10.0.1.0/24}, status: {addresses: [{type: InternalIP, address: 192.168.0.1}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n2, labels: {role: worker}}, spec: {podCIDR: 10.0.2.0/24}, status: {addresses: [{type: InternalIP, address: 192.168.0.2}]}}
---
{apiVersion: v1, kind: Node, metadata: {name: n3, labels: {role: control}}, spec: {podCIDR: 10.0.3.0/24}, status: {addresses: [{type: InternalIP, address: 192.168.0.3}]}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: web, labels: {app: web}}, spec: {nodeName: n1}, status: {podIP: 10.0.1.3}}
`

const workers = `
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: workers}
spec:
  priority: 1
  appliedTo: [{nodeSelector: {matchLabels: {role: worker}}}]
  ingress:
  - {action: Allow, from: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: 9100}]}
  - {action: Allow, from: [{podSelector: {matchLabels: {app: web}}}]}
  - {action: Drop}
  egress:
  - {action: Drop, to: [{nodeSelector: {matchLabels: {role: control}}}], ports: [{port: 2379}]}
`

// TestNodes: a preview of a policy for nodes names the packets that the policies of the nodes decide otherwise, those that only failsafe
// ports keep open, sockets that close, and connections that could not begin again. Nodes that are alike are one end.
func TestNodes(t *testing.T) {
	o, c := objects(t, threeHosts), Change{SetAntrea: objects(t, workers).Antrea.All()}
	p, err := Of(t.Context(), o, c)
	if err != nil {
		t.Fatal(err)
	}
	ssh := model.PortRange{Protocol: model.TCP, First: 22, Last: 22}
	m := &control.Model{Node: "n1", HostAddresses: []netip.Addr{netip.MustParseAddr("192.168.0.1")}, Failsafe: &model.Failsafe{In: []model.FailsafePort{{PortRange: ssh}}}}
	socket := func(local, peer, process string) control.Socket {
		s := control.Socket{Protocol: model.TCP, Local: netip.MustParseAddrPort(local), Process: process, UID: 7}
		if peer != "" {
			s.Peer = netip.MustParseAddrPort(peer)
		}
		return s
	}
	sockets := []control.Socket{
		socket("[::]:22", "", "sshd"), socket("192.168.0.1:22", "192.168.0.3:40000", "sshd"), socket("0.0.0.0:9100", "", "exporter"),
		socket("192.168.0.1:9100", "192.0.2.9:40000", "exporter"), socket("192.168.0.1:9100", "192.168.0.3:40001", ""), socket("127.0.0.1:9200", "", "local"),
		socket("192.168.0.1:50000", "192.168.0.3:2379", "etcdctl"), socket("192.168.0.1:50001", "192.168.0.3:6443", "kubelet"),
	}
	if err := p.Nodes(t.Context(), o, c, m, func(context.Context) ([]control.Socket, error) { return sockets, nil }); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range Grouped(p.OfNodes) {
		got = append(got, fmt.Sprintf("%s > %s %s: %s", strings.Join(d.From, ","), strings.Join(d.To, ","), strings.Join(d.Ports, " "), d.Becomes))
	}
	slices.Sort(got)
	want := []string{
		"192.0.2.0/24 > node n1,node n2 all but tcp/22 tcp/9100 icmp type 3 code 4: denied",
		"node n1,node n2 > node n3 tcp/2379: denied",
		"node n1,node n2,node n3,anyone else outside > node n1,node n2 all but tcp/22 icmp type 3 code 4: denied",
		"node n1,node n2,node n3,anyone else outside,192.0.2.0/24 > node n1,node n2 tcp/22: kept open by the failsafe ports",
	}
	if !slices.Equal(got, want) {
		t.Errorf("packets:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	got = nil
	for _, s := range p.Sockets {
		got = append(got, fmt.Sprintf("%s %s %s: %s", s.Owner(), s.Local, strings.Join(s.Peers, ","), s.Becomes))
	}
	slices.Sort(got)
	want = []string{
		"a process of user 7 192.168.0.1:9100 192.168.0.3: denied",
		"etcdctl 192.168.0.1:50000 192.168.0.3: denied",
		"exporter 0.0.0.0:9100 node n2,node n3,anyone else outside: denied",
		"sshd 192.168.0.1:22 192.168.0.3: kept open by the failsafe ports",
		"sshd [::]:22 node n2,node n3,anyone else outside,192.0.2.0/24: kept open by the failsafe ports",
	}
	if !slices.Equal(got, want) {
		t.Errorf("sockets:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var text strings.Builder
	if err := Print(&text, p, false); err != nil || !p.Changes() || !strings.Contains(text.String(), "ingress and egress of 2 nodes") {
		t.Errorf("%v\n%s", err, text.String())
	}

	// The same again changes nothing, and asks for no sockets.
	p = &Preview{}
	o.Antrea = objects(t, workers).Antrea
	if err := p.Nodes(t.Context(), o, c, m, func(context.Context) ([]control.Socket, error) { return sockets, nil }); err != nil || p.Changes() || len(p.Sockets) > 0 {
		t.Errorf("unchanged: %v, %+v", err, p)
	}
}

// TestClusterIPs: policies judge a connection of the node to a Service by its endpoint, which its socket does not have: a preview does not judge
// it by the cluster IP.
func TestClusterIPs(t *testing.T) {
	const out = `
{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: out}, spec: {priority: 1, appliedTo: [{nodeSelector: {}}], egress: [{action: Drop, ports: [{port: 443}]}]}}
`
	o, c := objects(t, threeHosts), Change{SetAntrea: objects(t, out).Antrea.All()}
	services := netip.MustParsePrefix("10.96.0.0/16")
	for _, m := range []control.Model{{ServiceCIDRs: []netip.Prefix{services}}, {Settings: control.Settings{ServiceCIDRs: []netip.Prefix{services}}}} {
		m.Node, m.HostAddresses = "n1", []netip.Addr{netip.MustParseAddr("192.168.0.1")}
		p := &Preview{}
		if err := p.Nodes(t.Context(), o, c, &m, func(context.Context) (all []control.Socket, err error) {
			for _, peer := range []string{"10.96.0.1:443", "192.168.0.3:443"} {
				all = append(all, control.Socket{Protocol: model.TCP, Local: netip.MustParseAddrPort("192.168.0.1:50000"), Peer: netip.MustParseAddrPort(peer)})
			}
			return all, nil
		}); err != nil {
			t.Fatal(err)
		}
		if len(p.Sockets) != 1 || p.Sockets[0].Peer.Addr().String() != "192.168.0.3" {
			t.Errorf("%+v", p.Sockets)
		}
	}
}

// TestFailsafeAlone: a policy whose only effect a failsafe port prevents is a change: the preview names it, and nothing else.
func TestFailsafeAlone(t *testing.T) {
	const ssh = `
{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: ssh}, spec: {priority: 1, appliedTo: [{nodeSelector: {}}], ingress: [{action: Drop, ports: [{port: 22}]}]}}
`
	o, c := objects(t, threeHosts), Change{SetAntrea: objects(t, ssh).Antrea.All()}
	p, err := Of(t.Context(), o, c)
	if err != nil {
		t.Fatal(err)
	}
	m := &control.Model{Node: "n1", HostAddresses: []netip.Addr{netip.MustParseAddr("192.168.0.1")}, Failsafe: &model.Failsafe{In: []model.FailsafePort{{PortRange: model.PortRange{Protocol: model.TCP, First: 22, Last: 22}}}}}
	sockets := []control.Socket{{Protocol: model.TCP, Local: netip.MustParseAddrPort("[::]:22"), Process: "sshd"}, {Protocol: model.TCP, Local: netip.MustParseAddrPort("[::]:80"), Process: "web"}}
	if err := p.Nodes(t.Context(), o, c, m, func(context.Context) ([]control.Socket, error) { return sockets, nil }); err != nil {
		t.Fatal(err)
	}
	if !p.Changes() || len(p.OfNodes) == 0 || len(p.Sockets) != 1 || p.Sockets[0].Process != "sshd" || p.Sockets[0].Becomes != KeptOpen {
		t.Errorf("%+v", p)
	}
	for _, d := range p.OfNodes {
		if d.Becomes != KeptOpen || len(d.Ports) != 1 || d.Ports[0] != "tcp/22" {
			t.Errorf("%+v", d)
		}
	}
}

// TestFailsafeAddresses: a preview says to which peers a failsafe port with addresses stays open, and closes it to the others. So does reach.
func TestFailsafeAddresses(t *testing.T) {
	const ssh = `
{apiVersion: crd.antrea.io/v1beta1, kind: ClusterNetworkPolicy, metadata: {name: ssh}, spec: {priority: 1, appliedTo: [{nodeSelector: {matchLabels: {role: worker}}}], ingress: [{action: Drop, ports: [{port: 22}]}]}}
`
	failsafe := model.Failsafe{}
	for _, hosts := range []string{"192.168.0.3/32", "198.51.100.0/24"} {
		failsafe.In = append(failsafe.In, model.FailsafePort{PortRange: model.PortRange{Protocol: model.TCP, First: 22, Last: 22}, Net: netip.MustParsePrefix(hosts)})
	}
	o, c := objects(t, threeHosts), Change{SetAntrea: objects(t, ssh).Antrea.All()}
	m := &control.Model{Node: "n1", HostAddresses: []netip.Addr{netip.MustParseAddr("192.168.0.1")}, Failsafe: &failsafe}
	sockets := []control.Socket{
		{Protocol: model.TCP, Local: netip.MustParseAddrPort("0.0.0.0:22"), Process: "sshd"},
		{Protocol: model.TCP, Local: netip.MustParseAddrPort("192.168.0.1:22"), Peer: netip.MustParseAddrPort("198.51.100.9:40000"), Process: "sshd"},
		{Protocol: model.TCP, Local: netip.MustParseAddrPort("192.168.0.1:22"), Peer: netip.MustParseAddrPort("192.168.0.2:40000"), Process: "sshd"},
	}
	p := &Preview{}
	if err := p.Nodes(t.Context(), o, c, m, func(context.Context) ([]control.Socket, error) { return sockets, nil }); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range Grouped(p.OfNodes) {
		got = append(got, fmt.Sprintf("%s > %s: %s", strings.Join(d.From, ","), strings.Join(d.To, ","), d.Becomes))
	}
	for _, s := range p.Sockets {
		got = append(got, fmt.Sprintf("%s %s: %s", s.Local, strings.Join(s.Peers, ","), s.Becomes))
	}
	slices.Sort(got)
	want := []string{
		"0.0.0.0:22 node n3,198.51.100.0/24: kept open by the failsafe ports",
		"0.0.0.0:22 shop/web,node n2,anyone else outside: denied",
		"192.168.0.1:22 192.168.0.2: denied",
		"192.168.0.1:22 198.51.100.9: kept open by the failsafe ports",
		"node n3,198.51.100.0/24 > node n1,node n2: kept open by the failsafe ports",
		"shop/web,node n1,node n2,anyone else outside > node n1,node n2: denied",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	o.Antrea = objects(t, ssh).Antrea
	r, err := ReachOf(t.Context(), o, Question{From: "outside", To: "node:n1", Port: failsafe.In[0].PortRange, Failsafe: failsafe})
	if err != nil {
		t.Fatal(err)
	}
	got = nil
	for _, way := range r.Ways {
		got = append(got, strings.Join(way.From, ",")+" "+way.Verdict)
	}
	slices.Sort(got)
	if want := []string{"198.51.100.0/24 allowed", "anyone else outside denied"}; !slices.Equal(got, want) {
		t.Errorf("reach: %q, want %q", got, want)
	}
}
