package kernel

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// namespace is a fresh network namespace that goes with the test.
type namespace struct {
	name string
	fd   int
}

var namespaces atomic.Int32

func newNamespace(t testing.TB, tools ...string) namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, tool := range append([]string{"ip", "ipset"}, tools...) {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs the tool %s", tool)
		}
	}
	n := namespace{name: fmt.Sprintf("flx-ipset-%d-%d", os.Getpid(), namespaces.Add(1))}
	command(t, "", "ip", "netns", "add", n.name)
	t.Cleanup(func() { command(t, "", "ip", "netns", "del", n.name) })
	f, err := os.Open("/run/netns/" + n.name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	n.fd = int(f.Fd())
	return n
}

func (n namespace) run(t testing.TB, args ...string) string {
	t.Helper()
	return n.feed(t, "", args...)
}

func (n namespace) feed(t testing.TB, input string, args ...string) string {
	t.Helper()
	return command(t, input, "ip", append([]string{"netns", "exec", n.name}, args...)...)
}

func command(t testing.TB, input, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Stdin = strings.NewReader(input)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// open returns a driver for the namespace.
func (n namespace) open(t testing.TB) *Sets {
	t.Helper()
	s := New(Options{NetNS: n.fd})
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// save returns the output of `ipset save`, without sizes and seeds, sorted.
func (n namespace) save(t testing.TB) []string {
	t.Helper()
	var out []string
	for line := range strings.Lines(n.run(t, "ipset", "save")) {
		words := strings.Fields(line)
		for _, option := range []string{"hashsize", "maxelem", "bucketsize", "initval"} {
			if i := slices.Index(words, option); words[0] == "create" && i > 0 {
				words = slices.Delete(words, i, i+2)
			}
		}
		out = append(out, strings.Join(words, " "))
	}
	slices.Sort(out)
	return out
}

// saved returns the lines that save is to return for a set.
func saved(set ipsets.Set, members ...string) []string {
	family := map[model.Family]string{model.IPv4: "inet", model.IPv6: "inet6"}[set.Family]
	name := ipsets.KernelName(set.Name)
	out := []string{fmt.Sprintf("create %s %s family %s", name, typeName(set.Kind), family)}
	for _, m := range members {
		out = append(out, fmt.Sprintf("add %s %s", name, m))
	}
	slices.Sort(out)
	return out
}

// want checks the output of `ipset save`.
func (n namespace) want(t testing.TB, parts ...[]string) {
	t.Helper()
	want := slices.Concat(parts...)
	slices.Sort(want)
	if d := cmp.Diff(want, n.save(t)); d != "" {
		t.Errorf("ipset save (-want +got):\n%s", d)
	}
}

// apply runs both phases, which must succeed.
func apply(t testing.TB, s *Sets) tables.Result {
	t.Helper()
	r, err := s.ApplyUpdates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.ApplyDeletions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.Messages += d.Messages
	return r
}

// wantSilent checks that the next apply sends nothing.
func wantSilent(t testing.TB, s *Sets) {
	t.Helper()
	if r := apply(t, s); r.Messages != 0 || len(r.Refused) != 0 || len(r.Repaired) != 0 {
		t.Errorf("apply without a change: %+v", r)
	}
}

var (
	addresses4 = ipsets.Set{Name: "aweb-4", Kind: model.Addresses, Family: model.IPv4}
	addresses6 = ipsets.Set{Name: "aweb-6", Kind: model.Addresses, Family: model.IPv6}
	networks4  = ipsets.Set{Name: "nblock-4", Kind: model.Networks, Family: model.IPv4}
	networks6  = ipsets.Set{Name: "nblock-6", Kind: model.Networks, Family: model.IPv6}
	ports4     = ipsets.Set{Name: "phttp-4", Kind: model.AddressPorts, Family: model.IPv4}
	ports6     = ipsets.Set{Name: "phttp-6", Kind: model.AddressPorts, Family: model.IPv6}
)

func members(list ...string) []model.Member {
	var out []model.Member
	for _, s := range list {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, model.Member{Prefix: p})
		} else {
			out = append(out, model.AddressMember(netip.MustParseAddr(s)))
		}
	}
	return out
}

func triple(a string, p model.Protocol, port uint16) model.Member {
	m := model.AddressMember(netip.MustParseAddr(a))
	m.Protocol, m.Port = p, port
	return m
}

// nth returns the address that is n behind 10.0.0.0.
func nth(n int) model.Member {
	return model.AddressMember(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}))
}

// loadExample wants sets of all kinds and families.
func loadExample(s *Sets) {
	for _, set := range []ipsets.Set{addresses4, addresses6, networks4, networks6, ports4, ports6} {
		s.CreateSet(set)
	}
	s.AddMembers("aweb-4", members("10.0.0.1", "10.0.0.2", "255.255.255.255"))
	s.AddMembers("aweb-6", members("fd00::1"))
	s.AddMembers("nblock-4", members("10.1.0.0/16", "192.0.2.7/32", "128.0.0.0/2", "224.0.0.0/3"))
	s.AddMembers("nblock-6", members("2001:db8::/33", "fd00::5/128", "ff00::/8"))
	s.AddMembers("phttp-4", []model.Member{triple("10.0.0.1", model.TCP, 80), triple("10.0.0.2", model.SCTP, 5000)})
	s.AddMembers("phttp-6", []model.Member{triple("fd00::1", model.UDP, 53)})
}

var savedExample = slices.Concat(
	saved(addresses4, "10.0.0.1", "10.0.0.2", "255.255.255.255"),
	saved(addresses6, "fd00::1"),
	saved(networks4, "10.1.0.0/16", "192.0.2.7", "128.0.0.0/2", "224.0.0.0/3"),
	saved(networks6, "2001:db8::/33", "fd00::5", "ff00::/8"),
	saved(ports4, "10.0.0.1,tcp:80", "10.0.0.2,sctp:5000"),
	saved(ports6, "fd00::1,udp:53"),
)
