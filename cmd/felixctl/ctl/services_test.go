package ctl

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/cni/install"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

func shopServices() control.Services {
	ranges := []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24")}
	web := control.ServicePort{
		Name: "http", Protocol: model.TCP, Port: 80, AffinitySeconds: 10800,
		Frontends: []control.ServiceFrontend{
			{Kind: "clusterIP", Address: netip.MustParseAddr("10.96.0.1"), Port: 80},
			{Kind: "loadBalancer", Address: netip.MustParseAddr("192.0.2.1"), Port: 80, Empty: "drop", Sources: &ranges},
			{Kind: "nodePort", Address: netip.IPv4Unspecified(), Port: 30080, Empty: "drop"},
		},
		Endpoints: []control.ServiceEndpoint{
			{Address: netip.MustParseAddrPort("10.0.0.1:8080"), Node: "node1", Local: true, Inside: "not ready", Outside: "not ready"},
			{Address: netip.MustParseAddrPort("10.0.1.2:8080"), Node: "node2", Inside: "used", Outside: "policy Local"},
		},
	}
	dns := control.ServicePort{Protocol: model.UDP, Port: 53, Frontends: []control.ServiceFrontend{{Kind: "clusterIP", Address: netip.MustParseAddr("fd00:96::a"), Port: 53, Empty: "refuse"}}}
	problem := model.Problem{Object: model.ObjectRef{Kind: "Service", Namespace: "shop", Name: "web"}, Field: "spec.externalIPs[0]", Reason: "192.0.2.9 is an address of node/node2: refused"}
	return control.Services{Node: "node1", Proxy: true, Services: []control.Service{
		{Namespace: "kube-system", Name: "dns", Ports: []control.ServicePort{dns}}, {Namespace: "shop", Name: "web", Ports: []control.ServicePort{web}, Problems: []model.Problem{problem}},
	}}
}

func TestPrintServices(t *testing.T) {
	var out strings.Builder
	if err := printServices(&out, shopServices(), terminal.Text); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(`node1
SERVICE          PORT    ADDRESS     USED
kube-system/dns  53/udp  fd00:96::a  0 of 0
shop/web         80/tcp  10.96.0.1   1 of 2
problem: service/shop/web: spec.externalIPs[0]: 192.0.2.9 is an address of node/node2: refused
`, out.String()); d != "" {
		t.Error(d)
	}
	out.Reset()
	if err := printServices(&out, control.Services{Node: "node1"}, terminal.Text); err != nil || out.String() != "node1: another program serves Services (serviceProxy: off)\n" {
		t.Error(err, out.String())
	}
}

// TestAPIServers: check names the API servers that cannot be reached; it fails if none can.
func TestAPIServers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	levels := func(servers ...string) (all []install.Level) {
		for _, f := range apiServers(t.Context(), servers) {
			all = append(all, f.Level)
		}
		return all
	}
	if got := levels("127.0.0.1:1", l.Addr().String()); !slices.Equal(got, []install.Level{install.Noted, install.Good}) {
		t.Errorf("one of two: %v", got)
	}
	if got := levels("127.0.0.1:1"); !slices.Equal(got, []install.Level{install.Missing}) {
		t.Errorf("none: %v", got)
	}
}

func TestPrintService(t *testing.T) {
	var out strings.Builder
	if err := printService(&out, shopServices().Services[1], terminal.Text); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(`shop/web 80/tcp (http), a client keeps its endpoint for 3h0m0s
KIND          ADDRESS            CLIENTS                     EMPTY
clusterIP     10.96.0.1:80       all                         -
loadBalancer  192.0.2.1:80       198.51.100.0/24 and 1 more  drop
nodePort      port 30080 (IPv4)  all                         drop
ENDPOINT       NODE    INSIDE     OUTSIDE
10.0.0.1:8080  node1*  not ready  not ready
10.0.1.2:8080  node2   used       policy Local
problem: service/shop/web: spec.externalIPs[0]: 192.0.2.9 is an address of node/node2: refused
`, out.String()); d != "" {
		t.Error(d)
	}
	for line := range strings.Lines(out.String()) {
		if len(line) > 81 && !strings.HasPrefix(line, "problem") {
			t.Errorf("wider than 80 columns: %s", line)
		}
	}
}

// TestPrintTranslator: under openflow a column says where connections of pods get their endpoint, and lines why by the host.
func TestPrintTranslator(t *testing.T) {
	all := shopServices()
	dns, web := all.Services[0].Ports[0].Frontends, all.Services[1].Ports[0].Frontends
	web[0].TranslatedBy = control.InBridge
	dns[0].TranslatedBy, dns[0].ByHostBecause = control.ByHost, "no endpoint here"
	for i := range web[1:] {
		web[i+1].TranslatedBy, web[i+1].ByHostBecause = control.ByHost, "not a cluster IP"
	}
	var out strings.Builder
	if err := printServices(&out, all, terminal.Text); err != nil {
		t.Fatal(err)
	}
	if err := printService(&out, all.Services[1], terminal.Text); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(`node1
SERVICE          PORT    ADDRESS     USED    BY
kube-system/dns  53/udp  fd00:96::a  0 of 0  host
shop/web         80/tcp  10.96.0.1   1 of 2  bridge
problem: service/shop/web: spec.externalIPs[0]: 192.0.2.9 is an address of node/node2: refused
shop/web 80/tcp (http), a client keeps its endpoint for 3h0m0s
KIND          ADDRESS            CLIENTS                     EMPTY  BY
clusterIP     10.96.0.1:80       all                         -      bridge
loadBalancer  192.0.2.1:80       198.51.100.0/24 and 1 more  drop   host
nodePort      port 30080 (IPv4)  all                         drop   host
by host: 192.0.2.1:80 and 1 more: not a cluster IP
ENDPOINT       NODE    INSIDE     OUTSIDE
10.0.0.1:8080  node1*  not ready  not ready
10.0.1.2:8080  node2   used       policy Local
problem: service/shop/web: spec.externalIPs[0]: 192.0.2.9 is an address of node/node2: refused
`, out.String()); d != "" {
		t.Error(d)
	}
}
