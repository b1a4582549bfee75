package dump

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/test/tablestest"
)

// flowsOfSwitch is a dump of the switch under backend openflow, foreignFlows one of other programs'
// flows.
const (
	flowsOfSwitch = "../../../../ovsfwd/flowtext/testdata/openflow.flows"
	foreignFlows  = "../../../../ovsfwd/flowtext/testdata/foreign.flows"
)

func load(t testing.TB, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func parse(t testing.TB, file string) *State {
	t.Helper()
	s, err := Parse(bytes.NewReader(load(t, file)))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return s
}

// text writes all that was read, as the tools would list it.
func text(t testing.TB, s *State, o TextOptions) string {
	t.Helper()
	var b bytes.Buffer
	for _, err := range []error{
		WriteNFT(&b, s.Tables, o), WriteIPTables(&b, s.Tables, model.IPv4, o), WriteIPTables(&b, s.Tables, model.IPv6, o),
		WriteIPSets(&b, s.IPSets, o), WriteFlows(&b, s.Flows, o),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// Rules, sets and flows of our backends parse as typed.
func TestOwnListingsAreTyped(t *testing.T) {
	for file, want := range map[string]Count{
		"nftables.nft":   {Tables: 9, Chains: 26, Rules: 51, Sets: 16, Elements: 30},
		"openflow.nft":   {Tables: 1, Chains: 6, Rules: 30, Sets: 6, Elements: 14},
		"senders.nft":    {Tables: 1, Chains: 1, Rules: 7, Sets: 4, Elements: 6},
		"tunnel.nft":     {Tables: 1, Chains: 4, Rules: 8, Sets: 2, Elements: 2},
		flowsOfSwitch:    {Flows: 318},
		"iptables.save":  {Tables: 4, Chains: 31, Rules: 48},
		"ip6tables.save": {Tables: 4, Chains: 31, Rules: 49},
		"ipsets.save":    {Sets: 12, Elements: 18},
	} {
		if got := parse(t, file).Count(); got != want {
			t.Errorf("%s: %+v, want %+v", file, got, want)
		}
	}
}

// The parsed rule has the hash that is in its comment.
func TestHashOfParsedRules(t *testing.T) {
	for file, fewest := range map[string]int{"nftables.nft": 30, "openflow.nft": 30, "senders.nft": 7, "tunnel.nft": 8} {
		rules := 0
		for _, table := range parse(t, file).Tables {
			for _, c := range table.Chains {
				for _, r := range c.Rules {
					if rules++; !r.Ours() || r.Rule.Hash() != r.Hash {
						t.Errorf("%s: chain %s: %s has the hash %s, and says %s", file, c.Name, r, r.Rule.Hash(), r.Hash)
					}
				}
			}
		}
		if rules < fewest {
			t.Errorf("%s: only %d rules", file, rules)
		}
	}
}

// Writing a parsed listing gives the same text.
func TestWrittenAsListed(t *testing.T) {
	priority := regexp.MustCompile(`priority ([a-z]+)( [+-] \d+)?;`)
	for _, file := range []string{"nftables.nft", "openflow.nft", "senders.nft", "tunnel.nft", filepath.Join("..", "..", "..", "..", "tables", "nftables", "testdata", "listing.nft")} {
		listing := priority.ReplaceAllStringFunc(string(load(t, file)), func(s string) string {
			words := strings.Fields(strings.TrimSuffix(strings.TrimPrefix(s, "priority "), ";"))
			n, err := parsePriority(words, "inet", "postrouting")
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("priority %d;", n)
		})
		s, err := ParseNFT(strings.NewReader(listing))
		if err != nil {
			t.Fatal(err)
		}
		got := text(t, &State{Tables: s}, TextOptions{Counters: true})
		if diff := cmp.Diff(canonicalNFT(listing), canonicalNFT(got)); diff != "" {
			t.Errorf("%s (-listed +written):\n%s", file, diff)
		}
	}
	for _, file := range []string{"iptables.save", "ip6tables.save", "foreign.save"} {
		got := text(t, parse(t, file), TextOptions{Counters: true})
		if diff := cmp.Diff(tablestest.CanonicalIPTables(string(load(t, file))), tablestest.CanonicalIPTables(got)); diff != "" {
			t.Errorf("%s (-listed +written):\n%s", file, diff)
		}
	}
	got := text(t, parse(t, "ipsets.save"), TextOptions{})
	want := strings.ReplaceAll(tablestest.CanonicalIPSets(string(load(t, "ipsets.save"))), " maxelem 1048576", "")
	if diff := cmp.Diff(want, tablestest.CanonicalIPSets(got)); diff != "" {
		t.Errorf("ipsets (-listed +written):\n%s", diff)
	}
}

// canonicalNFT is of a listing with several tables.
func canonicalNFT(listing string) string {
	var all []string
	// Elements may be on lines of their own.
	listing = strings.NewReplacer("elements = {\n\t\t\t", "elements = { ", ",\n\t\t}", " }").Replace(listing)
	listing = regexp.MustCompile(`,\n\s+`).ReplaceAllString(listing, ", ")
	for part := range strings.SplitSeq(listing, "\n}\n") {
		if strings.TrimSpace(part) != "" {
			all = append(all, tablestest.CanonicalNFT(part+"\n}\n"))
		}
	}
	return strings.Join(all, "\n\n")
}

// Rules of other programs are typed if felixlike writes that form; the parser keeps the
// rest as text.
func TestForeignListings(t *testing.T) {
	s := parse(t, "foreign.nft")
	if n := s.Count().Foreign; n != 18 {
		t.Errorf("%d foreign objects", n)
	}
	table := s.Table(NFT, "inet", "firewalld")
	if len(table.Foreign) != 3 || !strings.HasPrefix(table.Foreign[0], "counter web {") {
		t.Errorf("objects: %q", table.Foreign)
	}
	if set := table.Set("blocked"); set.Kind != 0 || len(set.Foreign) != 2 || !strings.HasSuffix(set.Foreign[1], `comment "a, b"`) {
		t.Errorf("set blocked: %+v", set)
	}
	if set := table.Set("ranges"); set.Kind != model.Networks || len(set.Elements) != 2 || len(set.Foreign) != 0 {
		t.Errorf("set ranges: %+v", set)
	}
	rules := table.Chain("filter_IN").Rules
	if rules[0].Foreign != "tcp dport { 22, 80, 443, 8080-8090 } ct state new,untracked accept" || rules[0].Comment != "with { brackets }" {
		t.Errorf("rule 0: %+v", rules[0])
	}
	if rules[2].Foreign != "" || rules[2].Action != (tables.Drop{}) || !rules[2].Counted {
		t.Errorf("rule 2: %+v", rules[2])
	}
	if rules[7].Foreign != "counter" {
		t.Errorf("rule 7: %+v", rules[7])
	}
	if h := s.Table(NFT, "netdev", "x").Chain("in").Hook; h.Device != `"lo"` || h.Priority != -500 {
		t.Errorf("hook %+v", h)
	}
}

func TestBrokenListings(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"empty":          {"", "this is no listing"},
		"prose":          {"Hello there\n", "is of no listing"},
		"cut in chain":   {"table inet x {\n\tchain y {\n\t\tdrop\n", "ends inside chain y"},
		"cut in set":     {"table inet x {\n\tset y {\n\t\ttype ipv4_addr\n\t\telements = { 10.0.0.1,\n", "ends inside set y"},
		"cut in table":   {"*filter\n:FORWARD ACCEPT [0:0]\n-A FORWARD -j DROP\n", "ends inside table filter"},
		"cut flow":       {" cookie=0x0, table=0, n_packets=1, priority=1,ip\n", "is of no listing"},
		"member without": {"add x 10.0.0.1\n", "set x, which is not there"},
		"JSON":           {`{"nftables": [{"table": {"family": "inet", "name": "x"}}]}`, "without -j"},
	} {
		if _, err := Parse(strings.NewReader(c.in)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

// Parse separates several listings in one file.
func TestMixedListing(t *testing.T) {
	var all bytes.Buffer
	for _, file := range []string{"iptables.save", "ip6tables.save", "ipsets.save", "openflow.nft", flowsOfSwitch} {
		all.Write(load(t, file))
	}
	s, err := Parse(&all)
	want := Count{Tables: 9, Chains: 68, Rules: 127, Sets: 18, Elements: 32, Flows: 318}
	if got := s.Count(); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if s.Table(IPTables, "ip6", "mangle") == nil || s.Table(IPTables, "ip", "mangle") == nil {
		t.Error("a family is missing")
	}
}

// A table that a process owns, as nft 1.0.6 lists it with and without handles.
func TestOwnedTable(t *testing.T) {
	for _, listing := range []string{
		"table inet held { # progname agent\n\tflags owner\n\n\tchain unused {\n\t\tct state == new\n\t}\n}\n",
		"table inet held { # handle 7 progname my agent\n\tflags owner\n\n\tchain unused { # handle 1\n\t\tct state == new # handle 2\n\t}\n}\n",
	} {
		tables, err := ParseNFT(strings.NewReader(listing + "table inet next {\n}\n"))
		if err != nil {
			t.Errorf("%v:\n%s", err, listing)
			continue
		}
		if len(tables) != 2 || tables[0].Name != "held" || len(tables[0].Chains) != 1 || len(tables[0].Chains[0].Rules) != 1 || tables[1].Name != "next" {
			t.Errorf("read as %+v:\n%s", tables, listing)
		}
	}
}

// Every version of nft lists the flags of TCP in its own way.
func TestSYNAsListed(t *testing.T) {
	for listed, want := range map[string]string{
		"tcp flags != syn / fin,syn,rst,ack accept":             "proto tcp tcp !syn accept",
		"tcp flags syn / fin,syn,rst,ack accept":                "proto tcp tcp syn accept",
		"tcp flags & (fin | syn | rst | ack) != syn accept":     "proto tcp tcp !syn accept",
		"tcp flags & (fin | syn | rst | ack) == syn accept":     "proto tcp tcp syn accept",
		"tcp flags & fin,syn,rst,ack != syn accept":             "proto tcp tcp !syn accept",
		"meta l4proto != tcp accept":                            "proto !tcp accept",
		"tcp flags & rst == rst drop":                           "proto tcp tcp rst drop",
		"tcp flags rst / rst drop":                              "proto tcp tcp rst drop",
		"tcp flags rst drop":                                    "",
		"tcp flags & (syn | ack) == syn accept":                 "",
		"tcp flags syn accept":                                  "",
		"tcp flags != syn / fin,syn,rst accept":                 "",
		"tcp flags & (fin | syn | rst | ack) == syn,ack accept": "",
	} {
		r := parseNFTRule(listed)
		if got := r.Rule.String(); want != "" && (r.Foreign != "" || got != want) || want == "" && r.Foreign != listed {
			t.Errorf("%s: %q, foreign %q, want %q", listed, got, r.Foreign, want)
		}
	}
	for saved, want := range map[string]string{
		"-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -j ACCEPT": "proto tcp tcp !syn accept",
		"-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j ACCEPT":   "proto tcp tcp syn accept",
		"! -p tcp -j ACCEPT":                              "proto !tcp accept",
		"-p tcp -m tcp --tcp-flags SYN,ACK SYN -j ACCEPT": "",
	} {
		r := parseSavedRule(saved, model.IPv4, nil)
		if got := r.Rule.String(); want != "" && (r.Foreign != "" || got != want) || want == "" && r.Foreign != saved {
			t.Errorf("%s: %q, foreign %q, want %q", saved, got, r.Foreign, want)
		}
	}
}
