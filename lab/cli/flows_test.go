package cli

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/lab"
	"github.com/felixlike/felixlike/model"
)

const flowListing = `OFPST_FLOW reply (OF1.5) (xid=0x2):
 cookie=0xf11c010203040506, duration=9.1s, table=10, n_packets=3, n_bytes=126, idle_age=1, priority=200,ip,in_port=5,dl_src=0a:00:00:00:00:01,nw_src=10.10.0.12 actions=goto_table:30
 cookie=0xf11d010203040501, duration=9.1s, table=50, n_packets=0, n_bytes=0, idle_age=9, priority=200,ip,nw_src=10.10.0.12 actions=conjunction(7,1/3)
 cookie=0xf11d010203040502, duration=9.1s, table=50, n_packets=0, n_bytes=0, idle_age=9, priority=200,ip,nw_dst=10.10.1.10 actions=conjunction(7,2/3),conjunction(9,2/2)
 cookie=0xf11d010203040503, duration=9.1s, table=50, n_packets=0, n_bytes=0, idle_age=9, priority=200,udp,tp_dst=53 actions=conjunction(7,3/3)
 cookie=0xf11d010203040504, duration=9.1s, table=50, n_packets=4, n_bytes=240, idle_age=9, priority=190,conj_id=7,ip actions=set_field:0x7->reg5,ct(commit,table=61,zone=65520,exec(set_field:0x700000000/0xffffffff00000000->ct_label))
 cookie=0xf11d010203040505, duration=9.1s, table=60, n_packets=2, n_bytes=80, idle_age=9, priority=200,ip,nw_src=10.10.0.12 actions=drop
 cookie=0xf11d010203040506, duration=9.1s, table=90, n_packets=0, n_bytes=0, idle_age=9, priority=200,ip,reg1=0x5 actions=conjunction(8,2/2)
 cookie=0xf11d010203040507, duration=9.1s, table=90, n_packets=0, n_bytes=0, idle_age=9, priority=200,ipv6,reg1=0x5 actions=conjunction(8,2/2)
 cookie=0xf11d010203040508, duration=9.1s, table=90, n_packets=0, n_bytes=0, idle_age=9, priority=200,ip,nw_src=10.10.0.0/16 actions=conjunction(8,1/2)
 cookie=0xf11d010203040509, duration=9.1s, table=90, n_packets=1, n_bytes=60, idle_age=9, priority=190,conj_id=8,ip actions=set_field:0x8->reg6,ct(commit,table=101,zone=65520,exec(set_field:0x8/0xffffffff->ct_label))
`

func TestFlowsOfPod(t *testing.T) {
	r := &podRules{Pod: "x/a", Node: "n", Backend: "openflow", Address: "10.10.0.12"}
	r.followFlows(parseFlows(flowListing), map[string]string{"7": "x/web egress[0]", "8": "x/web ingress[0]"})
	r.names(lab.Status{Pods: []lab.PodStatus{{Pod: "kube-system/dns", Addresses: []netip.Addr{netip.MustParseAddr("10.10.1.10")}}}})
	const want = `x/a on n, backend openflow, 10.10.0.12

tables of egress: 10.10.0.12  nw_src=10.10.0.12
tables of ingress: 10.10.0.12  reg1=0x5

chain table 50
  PACKETS  MATCH                                                            VERDICT                         FOR
        4  nw_src=10.10.0.12 and conjunction(7,2/3) and conjunction(7,3/3)  ct(commit,table=61,zone=65520)  x/web egress[0]

chain table 60
  PACKETS  MATCH                              VERDICT  FOR
        2  priority=200,ip,nw_src=10.10.0.12  drop

chain table 90
  PACKETS  MATCH                            VERDICT                          FOR
        1  reg1=0x5 and conjunction(8,1/2)  ct(commit,table=101,zone=65520)  x/web ingress[0]

SET                 MEMBERS
conjunction(7,2/3)  ip,nw_dst=10.10.1.10 (kube-system/dns)
conjunction(7,3/3)  udp,tp_dst=53
conjunction(8,1/2)  ip,nw_src=10.10.0.0/16
`
	var b bytes.Buffer
	if err := r.print(&b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Error(diff)
	}
	closed := &podRules{Address: "10.10.0.13"}
	if closed.followFlows(parseFlows(flowListing), nil); len(closed.Dispatch) != 0 {
		t.Errorf("an address without a port: %+v", closed.Dispatch)
	}
}

func TestRulesAreNamedByTheirNumbers(t *testing.T) {
	of := rulesOf(&control.Status{Policies: []control.Policy{
		{Tier: model.TierNetworkPolicy.String(), Namespace: "x", Name: "web", IngressRules: 2},
		{Tier: model.TierAdmin.String(), Name: "all", EgressRules: 1},
	}})
	names := map[string]bool{}
	for _, name := range of {
		names[name] = true
	}
	if len(of) != 3 || !names["x/web ingress[1]"] || !names["admin:all egress[0]"] {
		t.Errorf("%v", of)
	}
}
