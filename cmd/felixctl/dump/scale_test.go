package dump

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
)

// lines is the number of lines of each listing.
const lines = 200_000

// listing yields a listing line by line, so that its own text is not measured.
type listing struct {
	line func(i int) string
	next int
	rest string
}

func (l *listing) Read(b []byte) (int, error) {
	for l.rest == "" {
		if l.next > lines {
			return 0, io.EOF
		}
		l.rest = l.line(l.next)
		l.next++
	}
	n := copy(b, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// chain number i/100 has rule number i.
func nftLine(i int) string {
	head := ""
	if i == 0 {
		head = "table inet felixlike {\n"
	}
	if i%100 == 0 {
		if i > 0 {
			head = "\t}\n"
		}
		if i == lines {
			return head + "}\n"
		}
		head += fmt.Sprintf("\tchain pin-x/policy-%d {\n", i/100)
	}
	return head + fmt.Sprintf("\t\tip saddr @a%d-4 tcp dport %d counter packets 1 bytes 60 accept comment \"flx:abcdefghijklmn x/policy-%d ingress[%d]\"\n", i%500, i%60000+1, i/100, i%100)
}

func savedLine(i int) string {
	switch i {
	case 0:
		return "*mangle\n:FORWARD ACCEPT [0:0]\n:flx-x - [0:0]\n"
	case lines:
		return "COMMIT\n"
	}
	return fmt.Sprintf("[1:60] -A flx-x -p tcp -m set --match-set flx-a%d-4 src -m tcp --dport %d -m comment --comment \"flx:abcdefghijklmn\" -m comment --comment \"networkpolicy/x/policy ingress[%d]\" -j ACCEPT\n", i%500, i%60000+1, i%100)
}

func memberLine(i int) string {
	if i == 0 {
		return "create flx-a-4 hash:ip family inet hashsize 1024 maxelem 65536\n"
	}
	return fmt.Sprintf("add flx-a-4 10.%d.%d.%d\n", i>>16&255, i>>8&255, i&255)
}

func flowLine(i int) string {
	return fmt.Sprintf(" cookie=0xf11d02b22f5b87ac, duration=9.1s, table=50, n_packets=1, n_bytes=60, idle_age=1, priority=200,ip,nw_src=10.%d.%d.%d actions=conjunction(%d,2/3)\n", i>>16&255, i>>8&255, i&255, i+1)
}

// TestMemory bounds the memory for 200,000 lines by the figure in docs/use/diff.md.
func TestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a few seconds")
	}
	for name, c := range map[string]struct {
		line func(int) string
		most float64
	}{
		"nft": {nftLine, 115}, "iptables-save": {savedLine, 95}, "ipset": {memberLine, 22}, "ovs-ofctl": {flowLine, 66},
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		s, err := Parse(&listing{line: c.line})
		runtime.GC()
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := float64(after.HeapAlloc-before.HeapAlloc) / (1 << 20)
		n := s.Count()
		t.Logf("%s: %.0f MB, %.0f bytes a line, %+v", name, got, got*(1<<20)/lines, n)
		if n.Foreign > 0 || n.Rules+n.Elements+n.Flows < lines-1 {
			t.Errorf("%s: %+v", name, n)
		}
		if got > c.most {
			t.Errorf("%s: %.0f MB, and no more than %.0f are stated", name, got, c.most)
		}
		runtime.KeepAlive(s)
	}
}

// Input that never ends, or has one endless line, is refused and not kept.
func TestEndless(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a few seconds")
	}
	for name, in := range map[string]io.Reader{
		"a line":     io.LimitReader(endless("x"), 64<<20),
		"a rule":     io.MultiReader(strings.NewReader("table inet x {\n\tchain y {\n\t\ttcp dport {\n"), io.LimitReader(endless("80,\n"), 64<<20)),
		"an element": io.MultiReader(strings.NewReader("table inet x {\n\tset y {\n\t\ttype ipv4_addr\n\t\telements = {\n"), io.LimitReader(endless("a\n"), 64<<20)),
	} {
		if _, err := Parse(in); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

type endless string

func (e endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = e[i%len(e)]
	}
	return len(b), nil
}
