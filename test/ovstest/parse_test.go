package ovstest

import "testing"

func TestParseFlow(t *testing.T) {
	for _, same := range [][]string{
		{
			"table=45,priority=10,ct_state=-new+est,tcp,tp_dst=80 actions=load:0x1->NXM_NX_REG0[16],resubmit(,61)",
			"cookie=0x1, table=45, priority=10,tcp,tp_dst=0x50/0xffff,ct_state=+est-new actions=set_field:0x10000/0x10000->reg0,goto_table:61",
		},
		{
			"table=50,ip,nw_src=10.0.0.0/8 actions=ct(commit,table=61,zone=65520,exec(load:0x2->NXM_NX_CT_LABEL[32..63]))",
			"table=50,nw_src=10.0.0.0/255.0.0.0,ip actions=ct(commit,zone=65520,table=61,exec(set_field:0x200000000/0xffffffff00000000->ct_label))",
		},
		{"table=1,priority=0 actions=drop", "table=1, priority=0 actions=drop"},
		{"ipv6,ipv6_dst=fd00::/8 actions=resubmit(,1),resubmit(,2)", "ipv6,ipv6_dst=fd00::/8 actions=resubmit(,1),goto_table:2"},
	} {
		a, err := ParseFlow(same[0])
		if err != nil {
			t.Fatal(err)
		}
		b, err := ParseFlow(same[1])
		if err != nil {
			t.Fatal(err)
		}
		if a.String() != b.String() {
			t.Errorf("%s\n%s", a, b)
		}
	}
	for _, bad := range []string{"table=1", "table=x actions=drop", "nonsense actions=drop", "ip,nw_src=x actions=drop"} {
		if f, err := ParseFlow(bad); err == nil {
			t.Errorf("%q became %s", bad, f)
		}
	}
}

func TestCovers(t *testing.T) {
	parse := func(s string) Flow {
		f, err := ParseFlow(s + " actions=drop")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, test := range []struct {
		wide, narrow string
		want         bool
	}{
		{"ip", "tcp,tp_dst=80", true},
		{"tcp,tp_dst=80", "ip", false},
		{"ip,nw_src=10.0.0.0/8", "ip,nw_src=10.1.0.0/16", true},
		{"ip,nw_src=10.0.0.0/8", "ip,nw_src=11.1.0.0/16", false},
		{"ip,ct_state=+trk", "ip,ct_state=-new+trk", true},
		{"", "arp", true},
		{"ip", "ipv6", false},
	} {
		if got := parse(test.wide).Covers(parse(test.narrow)); got != test.want {
			t.Errorf("%q covers %q: %v", test.wide, test.narrow, got)
		}
	}
}
