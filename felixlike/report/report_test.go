package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/metrics"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

var noon = time.Date(2026, 11, 3, 12, 0, 0, 0, time.Local)

func status() control.Status {
	return control.Status{
		AgentVersion: "v1.2.3 (go1.26.8)", Health: "127.0.0.1:10288", Node: "node1", Backend: "nftables", Datastore: "manifests", InSync: true, Observed: 7, Programmed: 7, StartedAt: time.Now(),
		LastApply: control.Apply{Error: "ovsdb: gone\nopenflow: refused"},
		Writes:    map[string]int{"ovsdb": 3, "iptables-nft": 12},
		Flows:     map[string]int{"openflow": 120, "openflow-policy": 3000},
		Handover:  &control.Handover{To: "iptables-nft", Phase: "building", Since: time.Now()},
		Endpoints: []control.Endpoint{
			{Namespace: "x", Name: "web", State: control.EndpointProgrammed, Interface: "flx1", Addresses: []string{"10.10.0.5"}, IngressPolicies: []string{"networkpolicy/x/base"}},
			{Namespace: "x", Name: "lost", State: control.EndpointClosed, Reason: "the datastore knows no such pod"},
		},
		Policies: []control.Policy{{Tier: "networkpolicy", Namespace: "x", Name: "base", IngressRules: 2, Endpoints: 1}},
		Quarantined: []control.Quarantined{{
			Stage: "nftables", Kind: "chain", Name: "pin-x/base", Rule: "rule 2", Owners: []model.ObjectRef{{Kind: "NetworkPolicy", Namespace: "x", Name: "base"}},
			Reason: "the kernel refuses it", Attempts: 3, Pods: []string{"x/web"}, Since: noon, NextTry: noon.Add(time.Minute),
		}, {
			Stage: "openflow-policy", Kind: "policy", Name: "networkpolicy/x/wide", Reason: "too many rules", Attempts: 1, Since: noon,
		}},
		Repairs: control.Repairs{Total: 41, Last: []control.Repair{
			{At: noon, Stage: "nftables", Kind: "chain", Name: "forward", What: "1 foreign rule", By: "nft (pid 7)", Took: 1234 * time.Microsecond},
			{At: noon, Stage: "nftables", Kind: "table", Name: "felixlike", What: "missing", Took: time.Second},
		}},
		Running:  []control.Running{{Stage: "openflow", Since: time.Now()}},
		Problems: []model.Problem{{Source: "a.yaml", Object: model.ObjectRef{Kind: "NetworkPolicy", Namespace: "x", Name: "bad"}, Field: "spec.ingress[0]", Reason: "broken"}},
	}
}

func TestStatusText(t *testing.T) {
	var b bytes.Buffer
	if err := Status(&b, status(), Filter{}, terminal.Text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"node node1   backend nftables", "revision 7 programmed of 7", "version v1.2.3 (go1.26.8)   probes and metrics 127.0.0.1:10288\n", "flows in the bridge: openflow 120, openflow-policy 3000\nwrites since start: iptables-nft 12, ovsdb 3   groups 0\n", "changing the backend to iptables-nft for ",
		"x/web   programmed  flx1       10.10.0.5  networkpolicy/x/base  open", "x/lost  closed                            -                     -",
		"x/base  networkpolicy", "a.yaml: networkpolicy/x/bad: spec.ingress[0]: broken",
		"LAST APPLY FAILED: ovsdb: gone\n  openflow: refused\n", "x/lost: the datastore knows no such pod", "applying openflow for ",
		"  OBJECT                                OF                    PODS CLOSED  SINCE     TRIES  NEXT TRY",
		"  nftables chain pin-x/base             networkpolicy/x/base            1  12:00:00      3  12:01:00",
		"  openflow-policy networkpolicy/x/wide                                  0  12:00:00      1  once changed",
		"  pin-x/base, rule 2: the kernel refuses it",
		"foreign changes undone: 41 since start",
		"  2026-11-03 12:00:00  nftables chain forward    1 foreign rule  nft (pid 7)  1.23ms",
		"  2026-11-03 12:00:00  nftables table felixlike  missing         unknown      1s",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s", want, b.String())
		}
	}
}

// TestStatusOfLayout: the layout in force, with the use of maps.
func TestStatusOfLayout(t *testing.T) {
	for want, l := range map[string]*control.Layout{
		"layout rules\n": {InForce: "rules"},
		"layout maps   grants 12 of at most 250000   pods in maps 3\n": {InForce: "maps", Grants: 12, GrantsBound: 250_000, Pods: 3},
		"": nil,
	} {
		s := status()
		s.Layout = l
		var b bytes.Buffer
		if err := Status(&b, s, Filter{}, terminal.Text); err != nil || !strings.Contains(b.String(), want) || want == "" && strings.Contains(b.String(), "layout") {
			t.Errorf("%v: no %q in\n%s", err, want, b.String())
		}
	}
}

func TestStatusOfOffload(t *testing.T) {
	for want, o := range map[string]control.Offload{
		"offload: off\n": {Setting: "off"},
		"offload: auto   the bridge switches established connections\n": {Setting: "auto", Active: true},
		"offload: auto   no effect: datapath netdev\n":                  {Setting: "auto", Why: "datapath netdev"},
	} {
		s := status()
		s.Offload = &o
		var b bytes.Buffer
		if err := Status(&b, s, Filter{}, terminal.Text); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("no %q in:\n%s%v", want, b.String(), err)
		}
	}
}

// TestStatusOfHosts: the policies of the node itself are shown with what is in force in their place, and why.
func TestStatusOfHosts(t *testing.T) {
	const ports = "  failsafe ports in: tcp/22   out: udp/53\n"
	for want, h := range map[string]control.Hosts{
		"policies of the node itself: confirmed   wanted: a, b\n" + ports: {State: control.HostsConfirmed},
		"policies of the node itself: withdrawn   wanted: a, b\n  withdrawn: b   in force: a\n  no answer\n" + ports: {
			State: control.HostsWithdrawn, Withdrawn: []string{"b"}, Confirmed: []string{"a"}, Reason: "no answer",
		},
		"policies of the node itself: not programmed   wanted: a, b\n  in force: not known\n  no memory\n" + ports: {State: control.HostsNotProgrammed, Reason: "no memory"},
		"policies of the node itself: off   wanted: a, b\n  in force: none\n" + ports:                              {State: control.HostsOff},
		"policies of the node itself: none\n" + ports:                                                              {State: control.HostsNone},
	} {
		s := status()
		h.Policies, h.FailsafeIn, h.FailsafeOut = []string{"a", "b"}, []string{"tcp/22"}, []string{"udp/53"}
		s.Hosts = &h
		var b bytes.Buffer
		if err := Status(&b, s, Filter{}, terminal.Text); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%v: no %q in\n%s", err, want, b.String())
		}
	}
}

// TestStaged: staged policies are shown as not enforced, each with what it would have denied.
func TestStaged(t *testing.T) {
	a, b := netip.MustParseAddr("10.10.0.2"), netip.MustParseAddr("2001:db8::1")
	first := control.StagedConnection{Direction: "egress", Source: a, Destination: b, Protocol: model.TCP, Port: 5432}
	echo := control.StagedConnection{Direction: "ingress", Source: b, Destination: a, Protocol: model.ICMPv6, Port: model.ICMPMessage(128, 0)}
	all := control.Staged{Node: "node1", NotEvaluated: "a reason", Policies: []control.StagedPolicy{
		{Policy: "networkpolicy/x/in", Evaluated: 9, Denied: 5, Pods: []control.StagedPod{{Pod: "x/a", Denied: 2, First: first}, {Pod: "x/b", Denied: 1, First: echo}}, Others: 2},
		{Policy: "networkpolicy/x/out"},
	}}
	s := status()
	s.Staged = &all
	var out bytes.Buffer
	if err := errors.Join(Status(&out, s, Filter{}, terminal.Text), PrintStaged(&out, terminal.Text, all), PrintStaged(&out, terminal.Text, control.Staged{})); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"staged policies: 2, not enforced   connections that they would have denied: 5\n", "10.10.0.2 -> [2001:db8::1]:5432 tcp, ", "2001:db8::1 -> 10.10.0.2 type 128 code 0 icmpv6, ",
		"  other pods ", "\nnode1: no connection is evaluated: a reason\n", "no staged policy selects a pod\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

// TestStatusOfVerify: a state that is not proved is never shown as equal; a difference, and a proof that has not ended, are shown as such.
func TestStatusOfVerify(t *testing.T) {
	classes := []control.Classes{{Family: "IPv4", Addresses: 15, Ports: 289, Interfaces: 3}}
	at := time.Now().Add(-3*time.Minute - 200*time.Millisecond)
	for want, v := range map[string]control.Verify{
		"verify: no proof has ended yet\n": {Mode: "onResync"},
		"verify: equal, 3m0s ago (nftables)\n classes IPv4: 15 of addresses, 289 of protocols and ports, 3 of interfaces\n onResync; last proof took 1.2s, CPU time 300ms, memory 40 MiB abandoned since: 2\n": {
			Mode: "onResync", Result: metrics.VerifyEqual, Backend: "nftables", Classes: classes, At: at, Took: 1204 * time.Millisecond, CPU: 300 * time.Millisecond, Memory: 40 << 20, Abandoned: 2,
		},
		"verify: not proved: chain x\n":      {Mode: "onResync", Result: metrics.VerifyNotProved, Reason: "chain x"},
		"verify: differs: 10.0.0.1 -> ...\n": {Mode: "onResync", Result: metrics.VerifyDiffers, Reason: "10.0.0.1 -> ..."},
		"verify: cannot run: no felixctl\n":  {Mode: "onResync", Result: metrics.VerifyFailed, Reason: "no felixctl"},
	} {
		var out strings.Builder
		if err := Status(&out, control.Status{InSync: true, Verify: &v}, Filter{}, terminal.Text); err != nil {
			t.Fatal(err)
		}
		if text := squeeze(out.String()); !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestStatusJSONRoundTrip(t *testing.T) {
	var b bytes.Buffer
	if err := Status(&b, status(), Filter{}, terminal.JSON); err != nil {
		t.Fatal(err)
	}
	var back control.Status
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || back.Endpoints[0].Name != "web" || back.Problems[0].Reason != "broken" {
		t.Errorf("%v %+v", err, back)
	}
}

func TestInOrder(t *testing.T) {
	good := control.Status{InSync: true, Observed: 7, Programmed: 7}
	if !Ready(good) {
		t.Error("a good status is degraded")
	}
	for what, spoil := range map[string]func(*control.Status){
		"first listing":  func(s *control.Status) { s.InSync = false },
		"failed apply":   func(s *control.Status) { s.LastApply.Error = "broken" },
		"waiting change": func(s *control.Status) { s.Observed++ },
		"an outage":      func(s *control.Status) { s.Unready = []string{"ovs-vswitchd does not answer"} },
		"quarantined":    func(s *control.Status) { s.Quarantined = status().Quarantined },
	} {
		bad := good
		if spoil(&bad); Ready(bad) {
			t.Errorf("%s: ready", what)
		}
	}
}

// TestConfigShowsValuesInUse: a setting such as auto shows the value of the running agent, and none without
// an agent.
func TestConfigShowsValuesInUse(t *testing.T) {
	running := &control.Status{Underlay: &control.Underlay{Datapath: "netdev", Uplink: "eth0", MTU: 1400}}
	for _, c := range []struct {
		running *control.Status
		want    []string
	}{
		{running, []string{"datapath auto default netdev\n", "mtu 1400 flag\n", "uplink default eth0\n"}},
		{nil, []string{"datapath auto default\n"}},
	} {
		rows := []config.Row{
			{Key: "datapath", Value: "auto", Origin: "default"}, {Key: "mtu", Value: "1400", Origin: "flag"}, {Key: "uplink", Origin: "default"},
		}
		var out strings.Builder
		if err := Config(&out, rows, c.running, terminal.Text); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(squeeze(out.String()), want) {
				t.Errorf("no %q in\n%s", want, out.String())
			}
		}
	}
}

// squeeze makes one space of many, and drops those before the end of a line.
func squeeze(s string) string {
	return strings.ReplaceAll(regexp.MustCompile(" +").ReplaceAllString(s, " "), " \n", "\n")
}

// TestStrict: a problem of an object is a fault for a strict filter only, whatever it chooses to show.
func TestStrict(t *testing.T) {
	s := control.Status{InSync: true, Problems: []model.Problem{{Object: model.ObjectRef{Kind: "NetworkPolicy", Namespace: "shop", Name: "db"}, Reason: "x"}}}
	for _, c := range []struct {
		f    Filter
		want string
	}{{Filter{}, "Ready: 1 problem"}, {Filter{Strict: true}, "Degraded: 1 problem"}, {Filter{Strict: true, Namespace: "ops"}, "Degraded: 1 problem"}} {
		var out strings.Builder
		if err := Status(&out, s, c.f, terminal.Text); err != nil || !strings.HasPrefix(out.String(), c.want) {
			t.Errorf("%+v: %v\n%s", c.f, err, &out)
		}
	}
}

// TestStatusNamesPolicies: each policy has the name of its kind, whatever its tier.
func TestStatusNamesPolicies(t *testing.T) {
	var out text
	out.policies(control.Status{Policies: []control.Policy{
		{Tier: "networkpolicy", Namespace: "x", Name: "base"},
		{Tier: "admin", Name: "apart"},
		{Tier: "baseline", Name: "base"},
		{Tier: "admin", API: model.AntreaCluster, Name: "p", Part: 2},
	}})
	for _, want := range []string{"\nnetworkpolicy/x/base ", "\nclusternetworkpolicy/apart ", "\nclusternetworkpolicy/base ", "\nclusternetworkpolicy.crd.antrea.io/p#2 "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
