package conntrack

import (
	"math"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

const mark = 0x20000000

// open returns the connection tracking of a namespace of the test's own.
func open(t *testing.T) *Kernel {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	if _, err := exec.LookPath("conntrack"); err != nil {
		t.Skip(err)
	}
	// The thread is not given back: it ends with the test's goroutine.
	runtime.LockOSThread()
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	k, err := OpenKernel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func dump(t *testing.T, k *Kernel) []Connection {
	t.Helper()
	var all []Connection
	if err := k.Dump(func(c Connection) { all = append(all, c) }); err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(all, func(a, b Connection) int { return strings.Compare(a.Original.String(), b.Original.String()) })
	return all
}

func tuple(protocol uint8, src, dst string) Tuple {
	t := Tuple{Protocol: protocol, Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst)}
	switch protocol {
	case unix.IPPROTO_ICMP:
		t.ICMPID, t.ICMPType = 77, 8
	case unix.IPPROTO_ICMPV6:
		t.ICMPID, t.ICMPType = 77, 128
	default:
		t.SrcPort, t.DstPort = 1000, 80
	}
	return t
}

// everything is a connection of each kind.
func everything() []Put {
	var puts []Put
	for _, c := range []struct {
		protocol uint8
		state    State
		tags     [2]uint32
	}{
		{unix.IPPROTO_TCP, StateEstablished, [2]uint32{}},
		{unix.IPPROTO_UDP, 0, [2]uint32{}},
		{unix.IPPROTO_SCTP, 4, [2]uint32{0x1234, 0x5678}}, // 4: established
	} {
		for _, ends := range [][2]string{{"10.9.0.1", "10.9.0.2"}, {"fd09::1", "fd09::2"}} {
			o := tuple(c.protocol, ends[0], ends[1])
			puts = append(puts, Put{Connection: Connection{Original: o, State: c.state, VTags: c.tags}})
		}
	}
	puts = append(puts,
		Put{Connection: Connection{Original: tuple(unix.IPPROTO_ICMP, "10.9.0.1", "10.9.0.2")}},
		Put{Connection: Connection{Original: tuple(unix.IPPROTO_ICMPV6, "fd09::1", "fd09::2")}},
	)
	for i := range puts {
		p := &puts[i]
		p.New, p.MarkMask = true, math.MaxUint32
		p.Liberal = p.Original.Protocol == unix.IPPROTO_TCP
		p.Reply, p.Replied, p.Mark, p.Timeout = p.Original.Reverse(), true, mark, 100*time.Second
	}
	return puts
}

func TestWriteAndDump(t *testing.T) {
	k := open(t)
	puts := everything()
	for _, zone := range []uint16{0, 65520} {
		for i := range puts {
			puts[i].Zone = zone
		}
		if n, err := k.Write(puts); err != nil || n != len(puts) {
			t.Fatalf("zone %d: wrote %d, %v", zone, n, err)
		}
		if n, err := k.Write(puts); err != nil || n != 0 {
			t.Errorf("zone %d, once more: wrote %d, %v", zone, n, err)
		}
	}
	all := dump(t, k)
	if len(all) != 2*len(puts) {
		t.Fatalf("%d entries, want %d", len(all), 2*len(puts))
	}
	for _, p := range puts {
		for _, zone := range []uint16{0, 65520} {
			i := slices.IndexFunc(all, func(c Connection) bool { return c.Zone == zone && c.Original == p.Original })
			if i < 0 {
				t.Errorf("%s is not in zone %d", p.Original, zone)
				continue
			}
			got := all[i]
			got.status, got.Timeout = 0, p.Timeout
			want := p.Connection
			want.Zone = zone
			if got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
			if all[i].Timeout < 90*time.Second {
				t.Errorf("%+v", all[i])
			}
		}
	}
	text := run(t, "conntrack", "-L", "-f", "ipv4", "-p", "tcp", "-w", "0")
	for _, want := range []string{"ESTABLISHED src=10.9.0.1 dst=10.9.0.2 sport=1000 dport=80 src=10.9.0.2 dst=10.9.0.1 sport=80 dport=1000 [ASSURED] mark=536870912"} {
		if !strings.Contains(text, want) {
			t.Errorf("conntrack(8) shows\n%swant %s", text, want)
		}
	}
}

func TestUpdateKeepsWhatIsOfOthers(t *testing.T) {
	k := open(t)
	run(t, "conntrack", "-I", "-p", "tcp", "-s", "10.9.0.1", "-d", "10.96.0.10", "-r", "10.9.0.2", "-q", "10.9.0.1", "--sport", "1000", "--dport", "80",
		"--reply-port-src", "8080", "--reply-port-dst", "1000", "-t", "50", "--state", "SYN_SENT", "-m", "0x4001")
	before := dump(t, k)
	if len(before) != 1 || !before[0].Translated() || before[0].Replied {
		t.Fatalf("%+v", before)
	}
	p := Put{Connection: before[0], MarkMask: mark}
	p.Mark, p.Liberal = mark, true
	if n, err := k.Write([]Put{p}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	want := before[0]
	want.Mark, want.Liberal = mark|0x4001, true
	after := dump(t, k)[0]
	if after.Timeout = want.Timeout; after != want {
		t.Errorf("marked: %+v\nwant %+v", after, want)
	}
	p.Revive, p.Replied, p.State, p.Timeout = true, true, StateEstablished, time.Hour
	if n, err := k.Write([]Put{p}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	after = dump(t, k)[0]
	if !after.Replied || after.State != StateEstablished || after.Timeout < 59*time.Minute || after.Reply != before[0].Reply || after.Mark != mark|0x4001 {
		t.Errorf("revived: %+v", after)
	}
}

func TestLabels(t *testing.T) {
	k := open(t)
	// The kernel keeps labels once a rule, or its Open vSwitch, asks for them.
	run(t, "nft", "add table inet t; add chain inet t c { type filter hook output priority 0; }; add rule inet t c ct label set 64")
	p := everything()[0]
	p.Zone, p.Label = 65520, Label{High: 1, Low: 1 << 33}
	if n, err := k.Write([]Put{p}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if got := dump(t, k)[0].Label; got != p.Label {
		t.Errorf("%+v, want %+v", got, p.Label)
	}
}

func TestDelete(t *testing.T) {
	k := open(t)
	puts := everything()
	var obsolete []Connection
	for i := range puts {
		puts[i].Zone = 65520
		obsolete = append(obsolete, puts[i].Connection)
	}
	if _, err := k.Write(puts); err != nil {
		t.Fatal(err)
	}
	for i := range puts {
		puts[i].Zone = 0
	}
	if _, err := k.Write(puts); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{len(puts), 0} {
		if n, err := k.Delete(obsolete); err != nil || n != want {
			t.Errorf("deleted %d, %v, want %d", n, err, want)
		}
	}
	all := dump(t, k)
	if len(all) != len(puts) || slices.ContainsFunc(all, func(c Connection) bool { return c.Zone != 0 }) {
		t.Errorf("%d left: %+v", len(all), all)
	}
}

func TestRefusedIsNamedAndTheRestWritten(t *testing.T) {
	k := open(t)
	puts := everything()
	puts[0].State = 99
	n, err := k.Write(puts)
	if n != len(puts)-1 || err == nil || !strings.Contains(err.Error(), "tcp 10.9.0.1:1000>10.9.0.2:80") {
		t.Errorf("wrote %d, %v", n, err)
	}
}

func TestReverse(t *testing.T) {
	for _, p := range everything() {
		if p.Original.Reverse().Reverse() != p.Original || p.Original.Reverse() == p.Original {
			t.Errorf("%+v becomes %+v", p.Original, p.Original.Reverse())
		}
	}
	for query, want := range map[uint8]uint8{8: 0, 13: 14, 15: 16, 17: 18, 3: 3} {
		if got := answer(unix.IPPROTO_ICMP, query); got != want || answer(unix.IPPROTO_ICMP, got) != query {
			t.Errorf("ICMP %d is answered by %d, want %d", query, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	var k Kernel
	for _, p := range everything() {
		k.m.Reset()
		k.step(&step{&p, false})
		f.Add(k.m.Attributes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, ok := parse(b)
		if !ok {
			return
		}
		// A parsed entry can be written.
		var m nfnetlink.Messages
		k := Kernel{m: m}
		k.step(&step{&Put{Connection: c, New: true}, false})
		if again, ok := parse(k.m.Attributes()); !ok || again.Original.Src != c.Original.Src {
			t.Errorf("%+v becomes %+v", c, again)
		}
	})
}
