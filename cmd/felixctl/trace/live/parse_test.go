package live

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
)

// shortly writes steps in few words.
func shortly(steps []trace.Step) []string {
	var all []string
	for _, s := range steps {
		line := fmt.Sprintf("%s | %s | %d | %s | %s", s.Place, s.Table, s.Number, s.Rule, s.Effect)
		if s.Comment != "" {
			line += " | " + s.Comment
		}
		if s.Policy != "" {
			line += " | " + s.Policy + " " + s.PolicyRule
		}
		all = append(all, line)
	}
	return all
}

func TestParseNFT(t *testing.T) {
	const text = `trace id 2c51b09b inet flx-trace-1 prerouting packet: iif "flx-gw0" ip saddr 10.10.0.11 ip daddr 10.10.0.10 tcp dport 80
trace id 2c51b09b inet flx-trace-1 prerouting rule ip saddr 10.10.0.11 meta nftrace set 1 (verdict continue)
trace id 2c51b09b inet flx-trace-1 prerouting policy accept
trace id 2c51b09b inet felixlike forward packet: iif "flx-gw0" oif "flx-gw0"
trace id 2c51b09b inet felixlike forward rule iifname "flx-gw0" counter packets 3 bytes 120 goto from-pods comment "flx:abcdefghijklmn from a pod or the tunnel" (verdict goto from-pods)
trace id 2c51b09b inet felixlike pin rule ip saddr @a-4 tcp dport 80 counter packets 0 bytes 0 accept comment "flx:abcdefghijklmn networkpolicy/default/web ingress[0]" (verdict accept)
trace id 0b8a97f6 inet felixlike forward rule counter packets 0 bytes 0 drop (verdict drop)
trace id 2c51b09b ip filter FORWARD policy drop
`
	steps := parseNFT("n1", strings.Split(text, "\n"))
	want := []string{
		`nftables inet felixlike | chain forward | 0 | iifname "flx-gw0" goto from-pods | goto from-pods | from a pod or the tunnel`,
		`nftables inet felixlike | chain pin | 0 | ip saddr @a-4 tcp dport 80 accept | accept | networkpolicy/default/web ingress[0] | networkpolicy/default/web ingress[0]`,
		`nftables ip filter | chain FORWARD | 0 |  | end of the chain: drop`,
	}
	if diff := cmp.Diff(want, shortly(steps)); diff != "" {
		t.Error(diff)
	}
	if !ruledOut(steps[2]) || ruledOut(steps[1]) {
		t.Error("the end of the packet is missing")
	}
}

func TestParseLegacy(t *testing.T) {
	e, ok := parseLegacy("TRACE: mangle:flx-pods-in-shop/ap-c3odxq3i:rule:2 \x00")
	if want := (legacyEvent{"mangle", "flx-pods-in-shop/ap-c3odxq3i", "rule", 2}); !ok || e != want {
		t.Errorf("%+v, %v", e, ok)
	}
	for _, text := range []string{"", "TRACE: ", "dropped: x", "TRACE: a:b:rule:c"} {
		if e, ok := parseLegacy(text); ok {
			t.Errorf("%q is taken for %+v", text, e)
		}
	}
}

// namer names conjunction 7.
type namer struct{ trace.Namer }

func (namer) Conjunction(id uint32) (policy, rule string) {
	return fmt.Sprint("default/", id), "ingress[0]"
}

func TestParseSwitch(t *testing.T) {
	const text = `Flow: tcp,in_port=4,dl_src=b2:b0:93:81:d1:c8

bridge("br-int")
----------------
 0. in_port=4, priority 190, cookie 0xf11c0225313c3837
    set_field:0x2/0xffff->reg0
    goto_table:30
30. ip, priority 200, cookie 0xf11c025406abf61d
    ct(table=31,zone=65520)
    drop
     -> A clone of the packet is forked to recirculate. The forked pipeline will be resumed at table 31.

Final flow: tcp,reg0=0x2
Datapath actions: ct(zone=65520),recirc(0xc)

recirc(0xc) - resume conntrack with default ct_state=trk|new (use --ct-next to customize)

bridge("br-int")
----------------
    thaw
        Resuming from table 31
31. priority 0, cookie 0xf11c02e11e1dc719
    goto_table:90
90. conj_id=7,ip, priority 190, cookie 0xf11d02b44f40a0c7
    set_field:0x7->reg6
    resubmit(,32)
    32. No match.
100. ip,reg1=0x3, priority 200, cookie 0xf11d02565637fa6a
    drop
`
	want := []string{
		"bridge br-int | table 0 classifier | 190 | in_port=4 | set_field:0x2/0xffff->reg0, goto_table:30",
		"bridge br-int | table 30 conntrack | 200 | ip | ct(table=31,zone=65520)",
		"bridge br-int | table 31 state | 0 |  | goto_table:90",
		"bridge br-int | table 90 NetworkPolicies, ingress | 190 | conj_id=7,ip | set_field:0x7->reg6, resubmit(,32) | default/7 ingress[0]",
		"bridge br-int | table 32 SCTP associations | 0 |  | no flow matches",
		"bridge br-int | table 100 isolation, ingress | 200 | ip,reg1=0x3 | drop",
	}
	if diff := cmp.Diff(want, shortly(parseSwitch("n1", "br-int", strings.Split(text, "\n"), namer{}))); diff != "" {
		t.Error(diff)
	}
}
