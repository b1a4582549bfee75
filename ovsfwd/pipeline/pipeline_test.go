package pipeline

import (
	"flag"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/test/ovstest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func mustMAC(s string) net.HardwareAddr {
	mac, err := net.ParseMAC(s)
	if err != nil {
		panic(err)
	}
	return mac
}

func addrs(texts ...string) []netip.Addr {
	out := make([]netip.Addr, len(texts))
	for i, s := range texts {
		out[i] = netip.MustParseAddr(s)
	}
	return out
}

// The node, pods and peer are those of the reference flows, with IPv6 beside.
func testNode() Node {
	return Node{
		GatewayPort: 2, TunnelPort: 1, GatewayMAC: mustMAC("e2:e5:a4:9b:1c:b1"), Gateways: addrs("10.10.0.1", "fd00:10:10::1"),
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24"), netip.MustParsePrefix("fd00:10:10::/64")},
	}
}

func testPods() []*model.Attachment {
	return []*model.Attachment{
		{
			Pod: model.PodID{Namespace: "kube-system", Name: "coredns5-8ec607"}, OFPort: 3,
			MAC: mustMAC("12:9e:a6:47:d0:70"), Addresses: addrs("10.10.0.2", "fd00:10:10::2"),
		},
		{
			Pod: model.PodID{Namespace: "kube-system", Name: "coredns5-9d9530"}, OFPort: 4,
			MAC: mustMAC("ba:a8:13:ca:ed:cf"), Addresses: addrs("10.10.0.3"),
		},
	}
}

func testPeer() *model.Node {
	return &model.Node{
		Name: "n2", Addresses: addrs("192.168.77.101", "fd77::101"),
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.10.1.0/24"), netip.MustParsePrefix("fd00:10:10:1::/64")},
	}
}

// testPeer6 is the same peer without an IPv4 address.
func testPeer6() *model.Node {
	p := testPeer()
	p.Addresses = p.Addresses[1:]
	return p
}

// fullNode is the same node with the full pipeline.
func fullNode() Node {
	n := testNode()
	n.Mode, n.Userspace = Full, true
	n.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("fd00:10:96::/112")}
	n.HostAddresses = addrs("10.10.0.1", "192.168.77.100", "fd77::100")
	return n
}

// offloadNode is the steering pipeline that switches established connections.
func offloadNode() Node {
	n := testNode()
	n.Offload = true
	return n
}

// servicesNode is the full pipeline that leads to Services.
func servicesNode() Node {
	n := fullNode()
	n.Services = true
	return n
}

// serviceFlows are the flows of three Services: with several endpoints, with one, and with affinity.
func serviceFlows(n Node) (flows []openflow.Flow) {
	if !n.Services {
		return nil
	}
	for _, f := range families() {
		for _, s := range slices.Concat(
			servicePort(f, portAll, 0, f.pod1, f.peerPod, f.outside), servicePort(f, portLocal, 0, f.pod1), servicePort(f, portSticky, time.Hour, f.peerPod, f.outside),
		) {
			flows = append(flows, Service(n, s)...)
		}
	}
	return flows
}

func all(n Node) []openflow.Flow {
	flows := append(Base(n), serviceFlows(n)...)
	for _, a := range testPods() {
		flows = append(flows, Endpoint(n, a)...)
	}
	return append(flows, Peer(n, testPeer())...)
}

func render(flows []openflow.Flow) []byte {
	var b strings.Builder
	for _, f := range flows {
		b.WriteString(f.String() + "\n")
	}
	return []byte(b.String())
}

func TestGolden(t *testing.T) {
	admin := fullNode()
	admin.AdminIngress, admin.OrderedEgress = true, true
	for path, n := range map[string]Node{
		"testdata/pipeline.txtar": testNode(), "testdata/offload.txtar": offloadNode(), "testdata/full.txtar": fullNode(), "testdata/full-admin.txtar": admin,
		"testdata/services.txtar": servicesNode(),
	} {
		pods := testPods()
		got := &txtar.Archive{
			Comment: []byte("Every flow of the pipeline for the node, pods and peer of the reference scenario, with IPv6.\n"),
			Files: []txtar.File{
				{Name: "base", Data: render(Base(n))},
				{Name: "endpoint with both families", Data: render(Endpoint(n, pods[0]))},
				{Name: "endpoint with IPv4", Data: render(Endpoint(n, pods[1]))},
				{Name: "peer", Data: render(Peer(n, testPeer()))},
				{Name: "peer with IPv6", Data: render(Peer(n, testPeer6()))},
			},
		}
		if n.Services {
			got.Files = append(got.Files, txtar.File{Name: "Services", Data: render(serviceFlows(n))})
		}
		if *update {
			if err := os.WriteFile(path, txtar.Format(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(txtar.Format(got))); diff != "" {
			t.Error(diff)
		}
	}
}

func TestNothingWithoutPortOrAddress(t *testing.T) {
	a := *testPods()[0]
	a.OFPort = 0
	if flows := Endpoint(testNode(), &a); flows != nil {
		t.Errorf("endpoint without port: %s", render(flows))
	}
	p := *testPeer()
	p.Addresses = nil
	if flows := Peer(testNode(), &p); flows != nil {
		t.Errorf("peer without address: %s", render(flows))
	}
}

func TestFlowsAreDistinct(t *testing.T) {
	seen := map[string]string{}
	for _, n := range []Node{testNode(), offloadNode(), fullNode()} {
		clear(seen)
		for _, f := range all(n) {
			match, _, _ := strings.Cut(f.String(), " ")
			if old := seen[match]; old != "" {
				t.Errorf("%s\n%s", old, f)
			}
			seen[match] = f.String()
		}
	}
}

// TestReferenceSteer compares the steering pipeline with the rows of the
// reference, as parsed matches and ordered actions.
func TestReferenceSteer(t *testing.T) {
	text, err := os.ReadFile("testdata/reference.tsv")
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]bool{}
	for _, f := range all(testNode()) {
		ours[parsed(t, f.String())] = true
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 4 {
			t.Fatalf("malformed row %q", line)
		}
		want := fields[1]
		if fields[2] != "-" {
			want = fields[3]
		}
		if !ours[parsed(t, want)] {
			t.Errorf("%s: no flow %s", fields[0], want)
		}
		rows++
	}
	if rows != 28 {
		t.Errorf("compared %d rows", rows)
	}
}

func parsed(t *testing.T, flow string) string {
	t.Helper()
	f, err := ovstest.ParseFlow(flow)
	if err != nil {
		t.Fatal(err)
	}
	return f.String()
}

// install programs flows in a bridge, and reads them back as a restarted agent does.
func install(t *testing.T, b *ovstest.Bridge, flows []openflow.Flow) {
	t.Helper()
	b.Install(Owner, Version, flows)
}

func TestFlowsInstall(t *testing.T) {
	b := ovstest.NewBridge(t)
	admin := fullNode()
	admin.AdminIngress, admin.OrderedEgress = true, true
	for _, n := range []Node{testNode(), offloadNode(), fullNode(), admin, servicesNode()} {
		b.Run("ovs-ofctl", "-O", "OpenFlow15", "del-flows", "unix:"+b.Management())
		install(t, b, all(n))
		var want []string
		for _, f := range all(n) {
			want = append(want, f.String())
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, b.Flows()); diff != "" {
			t.Errorf("%s: %s", n.Mode, diff)
		}
	}
}
