package flowtext_test

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/ovsfwd/flowtext"
)

func load(t testing.TB, file string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func read(t testing.TB, listing string) []*flowtext.Flow {
	t.Helper()
	all, err := flowtext.Read(strings.NewReader(listing))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Flows that felixlike writes are typed, and writing them gives the same text.
func TestWrittenAsListed(t *testing.T) {
	head := regexp.MustCompile(`^ cookie=\S+ duration=\S+ table=(\d+), .*?(priority=)`)
	listing := load(t, "openflow.flows")
	lines := strings.Split(listing, "\n")
	flows := read(t, listing)
	if len(flows) != 318 {
		t.Errorf("%d flows", len(flows))
	}
	for _, f := range flows {
		if f.Foreign != "" {
			t.Errorf("line %d is foreign: %s", f.Line, f)
		}
		want := head.ReplaceAllString(lines[f.Line-1], "table=$1,$2")
		// The order of fields is the switch's own there.
		sorted := func(s string) []string {
			match, actions, _ := strings.Cut(s, " actions=")
			return append(slices.Sorted(slices.Values(strings.Split(match, ","))), actions)
		}
		if diff := cmp.Diff(sorted(want), sorted(f.String())); diff != "" {
			t.Errorf("line %d (-listed +written):\n%s", f.Line, diff)
		}
		again, err := flowtext.Parse(f.String())
		if err != nil || again.String() != f.String() {
			t.Errorf("%s comes back as %v, %v", f, again, err)
		}
	}
}

// Flows that the listing does not have, as ovs-ofctl writes them.
func TestWrittenAsParsed(t *testing.T) {
	for _, want := range []string{
		"table=33,priority=220,ip,nw_frag=yes actions=goto_table:110",
		"table=33,priority=220,ip,nw_frag=later actions=goto_table:110",
		"table=33,priority=220,ipv6,nw_ttl=1 actions=goto_table:110",
		"table=33,priority=200,tcp actions=ct(table=34)",
		"table=34,priority=200,ip,ct_state=-new+est-rel-inv+trk actions=ct(table=70,nat)",
		"table=41,priority=200,tcp,reg10=0x2a30,nw_dst=10.96.0.1,tp_dst=80 actions=group:4045144080",
		"table=42,priority=200,tcp,reg8=0x104/0x107,nw_dst=10.96.0.1,tp_dst=80 actions=ct(commit,zone=65523,nat(dst=10.10.0.2:8080)),ct(table=31,zone=65520)",
		"table=42,priority=200,udp6,reg9=0x5,tp_dst=53,ipv6_dst=fd96::1 actions=ct(commit,zone=65523,nat(dst=[fd00::2]:53)),ct(zone=65523,nat)",
	} {
		f, err := flowtext.Parse(want)
		if err != nil || f.Foreign != "" || f.String() != want {
			t.Errorf("%s is %v, foreign %q, %v", want, f, f.Foreign, err)
		}
	}
}

// Of other programs' flows, those that felixlike does not write keep their text.
func TestForeignFlows(t *testing.T) {
	flows := read(t, load(t, "foreign.flows"))
	if len(flows) != 6 {
		t.Fatalf("%d flows", len(flows))
	}
	for i, f := range flows {
		if foreign := i != 4; foreign != (f.Foreign != "") {
			t.Errorf("%s: foreign %q", f, f.Foreign)
		}
	}
}

// Counters, cookie and timeouts are of the flow, and not of its match.
func TestAboutTheFlow(t *testing.T) {
	got := read(t, "NXST_FLOW reply (xid=0x4):\n# a remark\n\n cookie=0xf11c000000000007, duration=9s, table=3, n_packets=5, n_bytes=60, idle_timeout=7, hard_timeout=8, priority=9 actions=drop\n")
	want := []*flowtext.Flow{{Table: 3, Priority: 9, Cookie: 0xf11c000000000007, IdleTimeout: 7, HardTimeout: 8, Packets: 5, Bytes: 60, Line: 4}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got[0].Owner() != 0xf11c {
		t.Errorf("owner %#x", got[0].Owner())
	}
	for _, bad := range []string{"table=1", "table=256 actions=drop", "priority=x actions=drop", "n_packets=-1 actions=drop"} {
		if f, err := flowtext.Parse(bad); err == nil {
			t.Errorf("%q became %s", bad, f)
		}
	}
	if _, err := flowtext.Read(bytes.NewReader([]byte(" actions=drop\ncut off"))); err == nil || !strings.HasPrefix(err.Error(), "line 2: ") {
		t.Errorf("a line that is no flow: %v", err)
	}
}

func parse(t testing.TB, line string) *flowtext.Flow {
	t.Helper()
	f, err := flowtext.Parse(line)
	if err != nil || f.Foreign != "" {
		t.Fatalf("%q: %v, %v", line, f, err)
	}
	return f
}

// Notations of the same flow are one, after Normalise.
func TestSameInOtherWords(t *testing.T) {
	for _, same := range [][2]string{
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
		{"arp actions=load:0x2->NXM_OF_ARP_OP[],IN_PORT", "arp actions=set_field:2->arp_op,IN_PORT"},
	} {
		a, b := parse(t, same[0]), parse(t, same[1])
		a.Normalise()
		b.Normalise()
		if a.String() != b.String() {
			t.Errorf("%s\n%s", a, b)
		}
	}
}

func TestCovers(t *testing.T) {
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
		if got := parse(t, test.wide+" actions=drop").Covers(parse(t, test.narrow+" actions=drop")); got != test.want {
			t.Errorf("%q covers %q: %v", test.wide, test.narrow, got)
		}
	}
}

// TestFlowsThatReport drop, as far as the packet is concerned.
func TestFlowsThatReport(t *testing.T) {
	for actions, drops := range map[string]bool{
		"meter:26552,controller(max_len=142,id=61725)": true, "drop": true, "meter:1,goto_table:70": false, "NORMAL": false,
		"controller(max_len=142,id=61725,userdata=00.01)": false,
	} {
		f, err := flowtext.Parse("table=60,priority=200,ip,nw_src=10.0.0.1 actions=" + actions)
		if err != nil || f.Drops() != drops {
			t.Errorf("%s: drops %t, want %t; %v", actions, err == nil && f.Drops(), drops, err)
			continue
		}
		if again, err := flowtext.Parse(f.String()); err != nil || again.ActionsText() != f.ActionsText() {
			t.Errorf("%s: read again: %v", f, err)
		}
	}
}

// A typed flow and its text are one.
func FuzzParse(f *testing.F) {
	for _, file := range []string{"openflow.flows", "foreign.flows"} {
		for line := range strings.Lines(load(f, file)) {
			if len(line) < 300 {
				f.Add(line)
			}
		}
	}
	f.Fuzz(func(t *testing.T, line string) {
		flow, err := flowtext.Parse(line)
		if err != nil || flow.Foreign != "" {
			return
		}
		again, err := flowtext.Parse(flow.String())
		if err != nil || again.String() != flow.String() {
			t.Errorf("%q is %s, and then %v, %v", line, flow, again, err)
		}
	})
}
