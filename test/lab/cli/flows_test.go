package cli

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
)

// flowListing is a dump in the tool's notation; %[1]d and %#[1]x are the id of
// the egress rule of x/web, %[2]d that of an ingress rule which denies.
const flowListing = `OFPST_FLOW reply (OF1.5) (xid=0x2):
 cookie=0xf11c010203040506, duration=9.1s, table=10, n_packets=3, n_bytes=126, idle_age=1, priority=200,ip,in_port=5,dl_src=0a:00:00:00:00:01,nw_src=10.10.0.12 actions=goto_table:30
 cookie=0xf11c02b22f5b87ac, duration=1s, table=45, n_packets=274, n_bytes=9, priority=0 actions=goto_table:50
 cookie=0xf11d02b22f5b87ad, duration=1s, table=45, n_packets=2, n_bytes=9, priority=64989,ip,nw_src=10.10.0.99 actions=drop
 cookie=0xf11d02b22f5b87ae, duration=1s, table=45, n_packets=3, n_bytes=9, priority=64989,ip,nw_src=10.10.0.12 actions=drop
 cookie=0xf11c02daae4fb070, duration=1s, table=50, n_packets=6, n_bytes=0, priority=210,ct_state=-new+est,ip actions=goto_table:70
 cookie=0xf11c02daae4fb070, duration=1s, table=50, n_packets=6, n_bytes=0, priority=210,ct_state=-new+est,ipv6 actions=goto_table:70
 cookie=0xf11d02285e62c7d3, duration=1s, table=50, n_packets=2, n_bytes=0, priority=190,conj_id=%[1]d,ip actions=set_field:%#[1]x->reg5,ct(commit,table=61,zone=65520,exec(load:%#[1]x->NXM_NX_CT_LABEL[32..63]))
 cookie=0xf11d026958b36e81, duration=1s, table=50, n_packets=0, n_bytes=0, priority=200,ip,nw_dst=10.10.1.10 actions=conjunction(7,2/3),conjunction(%[1]d,2/3)
 cookie=0xf11d026958b36e82, duration=1s, table=50, n_packets=0, n_bytes=0, priority=200,ip,nw_dst=192.0.2.1 actions=conjunction(%[1]d,2/3)
 cookie=0xf11d026958b36e83, duration=1s, table=50, n_packets=0, n_bytes=0, priority=200,ip,nw_dst=192.0.2.2 actions=conjunction(%[1]d,2/3)
 cookie=0xf11d026958b36e84, duration=1s, table=50, n_packets=0, n_bytes=0, priority=200,ip,nw_dst=192.0.2.3 actions=conjunction(%[1]d,2/3)
 cookie=0xf11d026958b36e85, duration=1s, table=50, n_packets=0, n_bytes=0, priority=200,ip,nw_dst=192.0.2.4 actions=conjunction(%[1]d,2/3)
 cookie=0xf11d026958b36e86, duration=1s, table=50, n_packets=0, n_bytes=0, priority=200,ip,nw_dst=192.0.2.5 actions=conjunction(%[1]d,2/3)
 cookie=0xf11d02fe9477c424, duration=1s, table=50, n_packets=0, n_bytes=0, priority=200,tcp,tp_dst=80 actions=conjunction(%[1]d,3/3)
 cookie=0xf11d02dbe53082d5, duration=1s, table=50, n_packets=0, n_bytes=0, priority=200,ip,nw_src=10.10.0.13 actions=conjunction(7,1/3)
 cookie=0xf11d0212ea0d75cf, duration=1s, table=50, n_packets=0, n_bytes=0, priority=200,ip,nw_src=10.10.0.12 actions=conjunction(%[1]d,1/3)
 cookie=0xf11d0212ea0d75cf, duration=1s, table=50, n_packets=0, n_bytes=0, priority=190,conj_id=7,ip actions=drop
 cookie=0xf11d02f95993d93e, duration=1s, table=60, n_packets=71, n_bytes=9, priority=200,ip,nw_src=10.10.0.12 actions=drop
 cookie=0xf11d02a1d167cae6, duration=1s, table=61, n_packets=2, n_bytes=0, priority=200,ct_state=+new,reg5=%#[1]x actions=goto_table:70
 cookie=0xf11d02b1d167cae6, duration=1s, table=61, n_packets=2, n_bytes=0, priority=200,ct_state=+new,reg5=0x7 actions=goto_table:70
 cookie=0xf11d02cef3f836eb, duration=1s, table=61, n_packets=14, n_bytes=0, priority=200,ct_state=-new+est,ct_label=%#[1]x00000000/0xffffffff00000000 actions=goto_table:70
 cookie=0xf11c026760b2ed22, duration=1s, table=85, n_packets=0, n_bytes=0, priority=64990,ct_state=-new+est,ip actions=goto_table:105
 cookie=0xf11c029e2861f1b8, duration=1s, table=90, n_packets=8, n_bytes=0, priority=210,ip,nw_src=10.10.0.1 actions=goto_table:105
 cookie=0xf11d02dadb002b59, duration=1s, table=90, n_packets=0, n_bytes=0, priority=200,tcp,nw_dst=10.10.0.13,tp_dst=9090 actions=conjunction(%[2]d,3/3)
 cookie=0xf11d028aafd5e221, duration=1s, table=100, n_packets=0, n_bytes=0, priority=80,ip,reg1=0x5 actions=conjunction(%[2]d,2/2)
 cookie=0xf11d028aafd5e222, duration=1s, table=100, n_packets=0, n_bytes=0, priority=80,ip,nw_src=10.10.1.10 actions=conjunction(%[2]d,1/2)
 cookie=0xf11d028aafd5e223, duration=1s, table=100, n_packets=4, n_bytes=0, priority=80,conj_id=%[2]d,ip actions=set_field:%#[2]x->reg3,load:0x1->NXM_NX_REG0[20],resubmit(,101)
 cookie=0xf11d02c7dea85ac8, duration=1s, table=100, n_packets=41, n_bytes=0, priority=200,ip,reg1=0x4 actions=drop
 cookie=0xf11d0269ba259789, duration=1s, table=101, n_packets=4, n_bytes=0, priority=200,reg3=%#[2]x,reg0=0x100000/0x100000 actions=drop
`

const flowTables = `x/a on n, backend openflow, 10.10.0.12

table 45, admin tier, egress
  PACKETS  PRIORITY  MATCH                       ACTIONS        FOR
        3     64989  ip,nw_src=10.10.0.12 (x/a)  drop           closed pod
      274         0  any                         goto_table:50  all else

table 50, NetworkPolicies, egress
  PACKETS  PRIORITY  MATCH                       ACTIONS                      FOR
        6       210  ip,ct_state=-new+est        goto_table:70                established connections
                200  ip,nw_src=10.10.0.12 (x/a)  conjunction(3041050693,1/3)  x/web egress[0]
                200  ip,nw_dst=10.10.1.10 (x/b)  conjunction(3041050693,2/3)  x/web egress[0]
                200  ip,nw_dst=192.0.2.1         conjunction(3041050693,2/3)  x/web egress[0]
                200  ip,nw_dst=192.0.2.2         conjunction(3041050693,2/3)  x/web egress[0]
                200  ip,nw_dst=192.0.2.3         conjunction(3041050693,2/3)  x/web egress[0]
                200  and 2 more                  conjunction(3041050693,2/3)  x/web egress[0]
                200  tcp,tp_dst=80               conjunction(3041050693,3/3)  x/web egress[0]
        2       190  ip,conj_id=3041050693       allow                        x/web egress[0]

table 60, isolation and baseline tier, egress
  PACKETS  PRIORITY  MATCH                       ACTIONS  FOR
       71       200  ip,nw_src=10.10.0.12 (x/a)  drop     isolated egress

table 61, counters, egress
  PACKETS  PRIORITY  MATCH                                                             ACTIONS        FOR
       14       200  ct_state=-new+est,ct_label=0xb542c04500000000/0xffffffff00000000  goto_table:70  x/web egress[0]: later packets
        2       200  reg5=0xb542c045,ct_state=+new                                     goto_table:70  x/web egress[0]: first packets

table 90, NetworkPolicies, ingress
  PACKETS  PRIORITY  MATCH                ACTIONS         FOR
        8       210  ip,nw_src=10.10.0.1  goto_table:105  this node

table 100, isolation and baseline tier, ingress
  PACKETS  PRIORITY  MATCH                       ACTIONS                      FOR
                 80  ip,nw_src=10.10.1.10 (x/b)  conjunction(3336641698,1/2)  baseline:last ingress[1]
                 80  ip,reg1=0x5 (to x/a)        conjunction(3336641698,2/2)  baseline:last ingress[1]
        4        80  ip,conj_id=3336641698       deny                         baseline:last ingress[1]

table 101, counters, ingress
  PACKETS  PRIORITY  MATCH                                   ACTIONS  FOR
        4       200  reg0=0x100000/0x100000,reg3=0xc6e11ca2  drop     baseline:last ingress[1]: denied
`

func TestFlowsOfPod(t *testing.T) {
	status := &control.Status{Policies: []control.Policy{
		{Tier: "networkpolicy", Namespace: "x", Name: "web", EgressRules: 1},
		{Tier: "baseline", Name: "last", IngressRules: 2},
	}}
	web := policyflows.HashID(policyflows.RuleID{
		Policy: model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: "web"}, Direction: model.Egress,
	})
	last := policyflows.HashID(policyflows.RuleID{
		Policy: model.PolicyID{Tier: model.TierBaseline, Name: "last"}, Direction: model.Ingress, Index: 1,
	})
	flows := held(t, fmt.Sprintf(flowListing, web, last)).Flows
	p := podFlows{
		address: "10.10.0.12", port: portOf(flows, "10.10.0.12"), family: model.IPv4, names: ruleNames(status), pod: "x/a", parts: map[uint32]uint16{},
		pods: map[string]string{"10.10.0.12": "x/a", "10.10.0.13": "x/c", "10.10.1.10": "x/b"},
	}
	r := &podRules{Pod: "x/a", Node: "n", Backend: config.OpenFlow, Address: p.address}
	r.Chains = p.tables(flows)
	var out bytes.Buffer
	if err := r.print(&out); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(flowTables, out.String()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
