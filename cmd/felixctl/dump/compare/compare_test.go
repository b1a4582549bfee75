package compare

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/ovsfwd/flowtext"
)

const listingBefore = `table inet felixlike {
	map to-pods-4 {
		type ipv4_addr : verdict
		elements = { 10.0.0.1 : accept, 10.0.0.2 : goto pods-in-a, 10.0.0.3 : drop }
	}
	set web-4 {
		type ipv4_addr
		elements = { 10.0.0.1, 10.0.0.2 }
	}
	set gone-4 {
		type ipv4_addr
		elements = { 10.0.0.9 }
	}
	chain forward {
		type filter hook forward priority mangle; policy accept;
		counter packets 1 bytes 2 goto pods-in-a comment "flx:aaaaaaaaaaaaaa in"
	}
	chain pods-in-a {
		ip saddr @web-4 tcp dport 80 counter packets 7 bytes 8 accept comment "flx:bbbbbbbbbbbbbb networkpolicy/x/p ingress[0]"
		ip saddr @web-4 udp dport 53 counter accept comment "flx:cccccccccccccc networkpolicy/x/p ingress[1]"
		ip saddr @gone-4 counter accept comment "flx:dddddddddddddd networkpolicy/x/q ingress[0]"
		counter drop comment "flx:eeeeeeeeeeeeee isolated ingress"
	}
}
table inet theirs {
	chain c {
		tcp dport { 1, 2 } drop
	}
}
 cookie=0xf11d000000000001, table=50, n_packets=5, priority=200,ip,nw_src=10.0.0.1 actions=conjunction(7,1/2)
 cookie=0xf11d000000000002, table=50, n_packets=5, priority=200,tcp,tp_dst=80 actions=conjunction(7,2/2),conjunction(8,2/2)
 cookie=0xf11d000000000003, table=50, n_packets=5, priority=100,udp actions=drop
 cookie=0xf11e000000000003, table=32, n_packets=5, priority=100,udp actions=drop
 cookie=0x3, table=50, n_packets=5, priority=7,udp actions=drop
`

const listingAfter = ` cookie=0xf11d000000000009, table=50, n_packets=6, priority=200,tcp,tp_dst=80 actions=conjunction(7,2/2),conjunction(9,2/2)
 cookie=0xf11d000000000003, table=50, n_packets=5, priority=110,udp actions=drop
 cookie=0xf11d000000000001, table=50, n_packets=5, priority=200,ip,nw_src=10.0.0.4 actions=conjunction(7,1/2)
table inet felixlike { # handle 3
	set new-4 {
		type ipv4_addr
	}
	set web-4 {
		type ipv4_addr
		elements = { 10.0.0.7, 10.0.0.1 }
	}
	map to-pods-4 {
		type ipv4_addr : verdict
		elements = { 10.0.0.3 : drop, 10.0.0.2 : accept,
			     10.0.0.1 : accept }
	}
	chain pods-in-a {
		ip saddr @web-4 udp dport 53 counter accept comment "flx:cccccccccccccc networkpolicy/x/p ingress[1]" # handle 9
		counter drop comment "flx:eeeeeeeeeeeeee isolated ingress"
		ip saddr @web-4 tcp dport 8080 counter packets 9 bytes 9 accept comment "flx:ffffffffffffff networkpolicy/x/p ingress[0]"
	}
	chain forward {
		type filter hook forward priority filter; policy accept;
		counter packets 4 bytes 5 goto pods-in-a comment "flx:aaaaaaaaaaaaaa in"
	}
}
`

const structureWanted = `edited chain forward (table inet felixlike)
  edited hook "filter hook forward priority -150 policy accept" -> "filter hook forward priority 0 policy accept"
edited chain pods-in-a (table inet felixlike)
  edited rule "ip saddr @web-4 tcp dport 80 accept comment \"networkpolicy/x/p ingress[0]\"" -> "ip saddr @web-4 tcp dport 8080 accept comment \"networkpolicy/x/p ingress[0]\""
  removed rule "ip saddr @gone-4 accept comment \"networkpolicy/x/q ingress[0]\"" -> ""
removed set gone-4 (table inet felixlike)
  removed element "10.0.0.9" -> ""
added set new-4 (table inet felixlike)
edited map to-pods-4 (table inet felixlike)
  edited element "10.0.0.2 : goto pods-in-a" -> "10.0.0.2 : accept"
edited set web-4 (table inet felixlike)
  removed element "10.0.0.2" -> ""
  added element "" -> "10.0.0.7"
edited flows 50 ()
  edited flow "priority=200,tcp,tp_dst=80 actions=conjunction(7,2/2),conjunction(8,2/2)" -> "priority=200,tcp,tp_dst=80 actions=conjunction(7,2/2),conjunction(9,2/2)" # less: rule 8; more: rule 9
  moved flow "priority=100" -> "priority=110,udp actions=drop"
  added flow "" -> "priority=200,ip,nw_src=10.0.0.4 actions=conjunction(7,1/2)"
  removed flow "priority=200,ip,nw_src=10.0.0.1 actions=conjunction(7,1/2)" -> ""
`

func read(t *testing.T, text string, o Options) *dump.State {
	t.Helper()
	s, err := dump.Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return Canonical(s, o)
}

// noted names the rules of flows that are nothing but parts.
func noted(object any) string {
	f, ok := object.(*flowtext.Flow)
	if !ok || len(f.Match) > 0 || len(f.Actions) == 0 {
		return ""
	}
	if c, ok := f.Actions[0].(flowtext.Conjunction); ok {
		return fmt.Sprintf("rule %d", c.ID)
	}
	return ""
}

func sidesOf(t *testing.T, o Options) Sides {
	return Sides{Before: read(t, listingBefore, o), After: read(t, listingAfter, o), NoteBefore: noted, NoteAfter: noted}
}

func describe(objects []Object) string {
	var b strings.Builder
	for _, o := range objects {
		fmt.Fprintf(&b, "%s %s %s (%s)\n", o.Op, o.Kind, o.Name, o.In)
		for _, c := range o.Changes {
			fmt.Fprintf(&b, "  %s %s %q -> %q", c.Op, c.Kind, c.Before, c.After)
			if c.Note != "" {
				fmt.Fprintf(&b, " # %s", c.Note)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func TestStructure(t *testing.T) {
	o := Options{OnlyOurs: true}
	got := describe(Structure(sidesOf(t, o), o))
	if diff := cmp.Diff(structureWanted, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Order, counters, foreign and learned objects make no difference.
func TestNoise(t *testing.T) {
	o := Options{OnlyOurs: true}
	lines := strings.SplitAfter(listingBefore, "\n")
	var noisy []string
	for _, l := range lines {
		l = strings.ReplaceAll(strings.ReplaceAll(l, "packets 7 bytes 8", "packets 70 bytes 80"), "n_packets=5", "n_packets=6,idle_age=1")
		noisy = append(noisy, strings.ReplaceAll(l, "{ 10.0.0.1, 10.0.0.2 }", "{ 10.0.0.2,\n 10.0.0.1 }"))
	}
	// Learned flows come and go, and other programs write their own rules.
	text := strings.Join(noisy, "") + " cookie=0xf11e000000000003, table=32, n_packets=1, priority=100,tcp actions=drop\n cookie=0x9, table=1, priority=1 actions=NORMAL\n"
	a, b := read(t, listingBefore, o), read(t, text, o)
	s := Sides{Before: a, After: b, NoteBefore: noted, NoteAfter: noted}
	if diff := Structure(s, o); len(diff) > 0 {
		t.Errorf("%s", describe(diff))
	}
	if diff, err := Text(s, o, "a", "b"); err != nil || len(diff) > 0 {
		t.Errorf("%v %s", err, diff)
	}
	for name, all := range map[string]Options{"counters": {OnlyOurs: true, Counters: true}, "others": {}} {
		s := Sides{Before: read(t, listingBefore, all), After: read(t, text, all), NoteBefore: noted, NoteAfter: noted}
		if len(Structure(s, all)) == 0 {
			t.Errorf("%s: no difference", name)
		}
	}
}

func TestMoved(t *testing.T) {
	table := func(rules string) *dump.State {
		return read(t, "table inet felixlike {\n\tchain x {\n"+strings.ReplaceAll(rules, ";", "\n")+"\n\t}\n}\n", Options{})
	}
	s := Sides{Before: table("ip saddr 10.0.0.1 drop;ip saddr 10.0.0.2 drop;accept"), After: table("ip saddr 10.0.0.2 drop;accept;ip saddr 10.0.0.1 drop"), NoteBefore: noted, NoteAfter: noted}
	const want = `edited chain x (table inet felixlike)
  moved rule "place 1" -> "ip saddr 10.0.0.1 drop" # from place 1 to 3
`
	if got := describe(Structure(s, Options{})); got != want {
		t.Errorf("%s", got)
	}
}

func TestElements(t *testing.T) {
	for o, want := range map[dump.Elements]string{
		dump.CountOnly: "edited set web-4 (table inet felixlike)\n  edited element \"1 elements\" -> \"2 elements\"\n",
		dump.None:      "",
	} {
		options := Options{OnlyOurs: true, Elements: o}
		table := func(elements string) *dump.State {
			return read(t, "table inet felixlike {\n\tset web-4 {\n\t\ttype ipv4_addr\n\t\telements = { "+elements+" }\n\t}\n}\n", options)
		}
		s := Sides{Before: table("10.0.0.1"), After: table("10.0.0.2, 10.0.0.3"), NoteBefore: noted, NoteAfter: noted}
		if got := describe(Structure(s, options)); got != want {
			t.Errorf("%s: %s", o, got)
		}
	}
}

func TestText(t *testing.T) {
	o := Options{OnlyOurs: true}
	got, err := Text(sidesOf(t, o), o, "before", "after")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"--- before", "+++ after", "-\tset gone-4 {", "+\t\tip saddr @web-4 tcp dport 8080 counter accept comment \"networkpolicy/x/p ingress[0]\"",
		"-cookie=0xf11d000000000000,table=50,priority=100,udp actions=drop", "+\t\t\t10.0.0.7,",
	} {
		if !strings.Contains(string(got), line+"\n") {
			t.Errorf("no line %q in\n%s", line, got)
		}
	}
}
