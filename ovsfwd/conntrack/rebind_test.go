package conntrack

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRebind rebinds a connection with a masqueraded source and a translated destination: it stays equal, and
// accepts any sequence number of TCP.
func TestRebind(t *testing.T) {
	k := open(t)
	for _, args := range []string{
		"-I -p tcp -s 10.9.0.1 -d 10.96.0.1 --sport 1000 --dport 443 --state ESTABLISHED -u SEEN_REPLY,ASSURED -t 3000 -m 5 --src-nat 10.9.0.9:2000 --dst-nat 10.9.0.2:6443",
		"-I -p udp -s 10.9.0.1 -d 10.9.0.3 --sport 1001 --dport 53 -u SEEN_REPLY,ASSURED -t 100 --src-nat 10.9.0.9:2001",
		"-I -p udp -s 10.9.0.1 -d 10.9.0.3 --sport 1002 --dport 53 -u SEEN_REPLY,ASSURED -t 100",
	} {
		run(t, "conntrack", strings.Fields(args)...)
	}
	before := dump(t, k)
	var bound []Connection
	for _, c := range before {
		if c.MasqueradedBy(netip.MustParseAddr("10.9.0.9")) {
			bound = append(bound, c)
		}
	}
	if len(bound) != 2 {
		t.Fatalf("%d of %+v are masqueraded, want 2", len(bound), before)
	}
	if n, err := k.Rebind(bound); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	after := dump(t, k)
	for _, want := range before {
		i := slices.IndexFunc(after, func(c Connection) bool { return c.Original == want.Original })
		if i < 0 {
			t.Errorf("%s is gone", want.Original)
			continue
		}
		got := after[i]
		if got.Timeout < want.Timeout-2e9 || got.Timeout > want.Timeout {
			t.Errorf("%s ends in %s, not in %s", got.Original, got.Timeout, want.Timeout)
		}
		got.Timeout = want.Timeout
		want.Liberal = want.Original.Protocol == unix.IPPROTO_TCP
		if got != want {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
}

// TestRebindEnded: a connection that ended after the dump does not come back, and one that began again in its place stays as it is.
func TestRebindEnded(t *testing.T) {
	k := open(t)
	const entry = "-I -p tcp -s 10.9.0.1 -d 10.9.0.3 --dport 443 --state ESTABLISHED -u SEEN_REPLY,ASSURED -t 3000 --src-nat 10.9.0.9:"
	for _, port := range []string{"1000", "1001"} {
		run(t, "conntrack", strings.Fields(entry+"2"+port[1:]+" --sport "+port)...)
	}
	before := dump(t, k)
	for _, c := range before {
		if c.Original.SrcPort == 1000 {
			if n, err := k.Delete([]Connection{c}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	if n, err := k.Rebind(before); n != 1 || err != nil {
		t.Errorf("%d new entries, %v, want 1", n, err)
	}
	after := dump(t, k)
	if len(after) != 1 || after[0].Original.SrcPort != 1001 {
		t.Errorf("the connection that had ended is back: %+v", after)
	}
}
