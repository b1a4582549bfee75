package cli

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/model"
)

const nftListing = `table inet felixlike {
	map judge-egress-4 {
		type ipv4_addr : verdict
		elements = { 10.10.0.10 : accept, 10.10.0.11 : goto pods-out-x,
			     10.10.0.12 : goto pods-out-x }
	}

	set group-4 {
		type ipv4_addr
		elements = { 10.10.1.10 }
	}

	set ports-4 {
		type ipv4_addr . inet_proto . inet_service
		elements = { 10.10.1.10 . tcp . 9090,
			     192.0.2.7 . tcp . 9091 }
	}

	chain pods-out-x {
		counter packets 7 bytes 420 jump pout-x/web-abc comment "flx:aaaabbbbccccdd x/web"
		counter packets 3 bytes 180 drop comment "flx:fqfc4pp7i3vcne isolated egress"
	}

	chain pout-x/web-abc {
		ip daddr @group-4 ip daddr . meta l4proto . th dport @ports-4 counter packets 4 bytes 240 goto allowed-out comment "flx:eeeeffffgggghh x/web egress[0]"
		ip6 daddr @group-6 tcp dport 80 counter packets 1 bytes 60 goto allowed-out comment "flx:iiiijjjjkkkkll x/web egress[0]"
	}

	chain allowed-out {
		counter packets 5 bytes 300 meta mark set meta mark & 0xbfffffff | 0x40000000 comment "flx:mmmmnnnnoooopp allowed egress"
	}
}
`

const savedListing = `*filter
:FORWARD ACCEPT [0:0]
:flx-judge-egress - [0:0]
[9:540] -A FORWARD -m comment --comment "flx:d4mpw26iziadyd" -m comment --comment "felixlike forward" -j flx-forward
[7:420] -A flx-judge-egress -s 10.10.0.12/32 -m comment --comment "flx:2s5lbn3xpquzrp" -m comment --comment "policies of the source pod" -g flx-pods-out-x
[0:0] -A flx-judge-egress -s 10.10.0.0/24 -m comment --comment "flx:jpx4wjgwkuuoji" -m comment --comment "no endpoint has this address" -j DROP
[7:420] -A flx-pods-out-x -m comment --comment "flx:aaaabbbbccccdd" -m comment --comment x/web -j flx-pout-x
[3:180] -A flx-pods-out-x -m comment --comment "flx:fqfc4pp7i3vcne" -m comment --comment "isolated egress" -j DROP
[4:240] -A flx-pout-x -p tcp -m set --match-set flx-group-4 dst -m tcp --dport 80 -m comment --comment "flx:eeeeffffgggghh" -m comment --comment "x/web egress[0]" -g flx-allowed-out
[5:300] -A flx-allowed-out -m comment --comment "flx:mmmmnnnnoooopp" -m comment --comment "allowed egress" -j MARK --set-xmark 0x40000000/0x40000000
COMMIT
`

const savedSets = `create flx-group-4 hash:ip family inet hashsize 1024 maxelem 65536
add flx-group-4 10.10.1.10
create theirs hash:ip family inet
add theirs 192.0.2.1
`

func held(t *testing.T, listing string) *dump.State {
	t.Helper()
	s, err := dump.Parse(strings.NewReader(listing))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestRulesOfPod(t *testing.T) {
	for name, c := range map[string]struct {
		listing *listing
		want    string
	}{
		"nft": {listed(held(t, nftListing)), `x/a on n, backend b, 10.10.0.12

map judge-egress-4: 10.10.0.12  goto pods-out-x

chain pods-out-x
  PACKETS  MATCH  VERDICT              FOR
        7  any    jump pout-x/web-abc  x/web
        3  any    drop                 isolated egress

chain pout-x/web-abc
  PACKETS  MATCH                                                          VERDICT           FOR
        4  ip daddr @group-4 ip daddr . meta l4proto . th dport @ports-4  goto allowed-out  x/web egress[0]

SET      MEMBERS
group-4  10.10.1.10 (x/b)
ports-4  10.10.1.10,tcp/9090 (x/b), 192.0.2.7,tcp/9091
`},
		"iptables": {listed(held(t, savedListing+savedSets)), `x/a on n, backend b, 10.10.0.12

chain flx-judge-egress: -s 10.10.0.12/32  -g flx-pods-out-x

chain flx-pods-out-x
  PACKETS  MATCH  VERDICT        FOR
        7  any    -j flx-pout-x  x/web
        3  any    -j DROP        isolated egress

chain flx-pout-x
  PACKETS  MATCH                                                        VERDICT             FOR
        4  -p tcp -m set --match-set flx-group-4 dst -m tcp --dport 80  -g flx-allowed-out  x/web egress[0]

SET          MEMBERS
flx-group-4  10.10.1.10 (x/b)
`},
	} {
		r := &podRules{Pod: "x/a", Node: "n", Backend: "b", Address: "10.10.0.12"}
		r.follow(c.listing, model.IPv4)
		r.names(labs.Status{Pods: []labs.PodStatus{{Pod: "x/b", Addresses: []netip.Addr{netip.MustParseAddr("10.10.1.10")}}}}.PodNames())
		var out bytes.Buffer
		if err := r.print(&out); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, out.String()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
	closed := &podRules{Address: "10.10.0.99"}
	if closed.follow(listed(held(t, nftListing)), model.IPv4); len(closed.Dispatch) > 0 || len(closed.Chains) > 0 {
		t.Errorf("an unused address leads to %v, %v", closed.Dispatch, closed.Chains)
	}
}
