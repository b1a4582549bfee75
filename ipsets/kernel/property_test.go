package kernel

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
)

// wish is a test's desired state: members by set.
type wish map[string]*wishedSet

type wishedSet struct {
	spec    ipsets.Set
	members map[model.Member]bool
}

// lines returns the expected output of `ipset save`.
func (w wish) lines() []string {
	var out []string
	for _, name := range sorted(w) {
		elements := map[string]bool{}
		for m := range w[name].members {
			for e := range Elements(m) {
				elements[savedElement(e)] = true
			}
		}
		out = append(out, saved(w[name].spec, sorted(elements)...)...)
	}
	slices.Sort(out)
	return out
}

func savedElement(e element) string {
	text := e.Prefix.String()
	if e.Prefix.IsSingleIP() {
		text = e.Prefix.Addr().String()
	}
	if e.Protocol != model.AnyProtocol {
		text += fmt.Sprintf(",%s:%d", e.Protocol, e.Port)
	}
	return text
}

// loaded returns a fresh driver that wants the same.
func (w wish) loaded(t *testing.T, ns namespace) *Sets {
	s := ns.open(t)
	for _, name := range sorted(w) {
		s.CreateSet(w[name].spec)
		for m := range w[name].members {
			s.AddMembers(name, []model.Member{m})
		}
	}
	return s
}

// drawMember draws one of few members that a set can have.
func drawMember(rt *rapid.T, spec ipsets.Set) model.Member {
	n := rapid.IntRange(1, 6).Draw(rt, "member")
	a := netip.AddrFrom4([4]byte{10, 0, 0, byte(n)})
	if spec.Family == model.IPv6 {
		a = netip.AddrFrom16([16]byte{0xfd, 15: byte(n)})
	}
	m := model.AddressMember(a)
	switch spec.Kind {
	case model.AddressPorts:
		m.Protocol = rapid.SampledFrom([]model.Protocol{model.TCP, model.UDP, model.SCTP}).Draw(rt, "protocol")
		m.Port = uint16(rapid.IntRange(0, 2).Draw(rt, "port"))
	case model.Networks:
		bits := rapid.SampledFrom([]int{0, 1, 8, 31, a.BitLen()}).Draw(rt, "bits")
		if rapid.Bool().Draw(rt, "upper half") {
			upper := a.AsSlice()
			upper[0] |= 0x80
			a, _ = netip.AddrFromSlice(upper)
		}
		m.Prefix, _ = a.Prefix(bits)
	}
	return m
}

// tamper returns commands of the ipset tool that change our sets, or make
// others.
func tamper(rt *rapid.T, w wish) string {
	names := []string{"flx-stranger"}
	for _, name := range sorted(w) {
		names = append(names, ipsets.KernelName(name))
	}
	name := rapid.SampledFrom(names).Draw(rt, "victim")
	return rapid.SampledFrom([]string{
		"flush " + name,
		"destroy " + name,
		"add " + name + " 10.0.0.1", "add " + name + " fd00::1", "add " + name + " 10.0.0.1,tcp:1", "add " + name + " 10.7.0.0/16 nomatch",
		"del " + name + " 10.0.0.1", "del " + name + " fd00::2", "del " + name + " 10.0.0.1,tcp:1",
		"create " + name + " hash:net", "create " + name + " hash:ip family inet6 timeout 600", "create " + name + " hash:ip maxelem 1",
		"rename " + name + " flx-renamed", "rename " + name + " renamed",
		"swap " + name + " " + rapid.SampledFrom(names).Draw(rt, "other"),
		"create " + temporaryName(name) + " bitmap:port range 1-2",
	}).Draw(rt, "command")
}

// After any sequence of updates and foreign changes the kernel has the last desired
// state, and a restart writes nothing.
func TestSequencesOfUpdates(t *testing.T) {
	ns := newNamespace(t)
	seeded.Check(t, func(rt *rapid.T) {
		ns.run(t, "ipset", "destroy")
		s := New(Options{NetNS: ns.fd})
		defer func() { _ = s.Close() }()
		s.capacity = rapid.SampledFrom([]int{1, 4, 1 << 20}).Draw(rt, "capacity")
		w := wish{}
		name := rapid.SampledFrom([]string{"a", "b", "c", strings.Repeat("long", 10)})
		for range rapid.IntRange(1, 5).Draw(rt, "rounds") {
			for range rapid.IntRange(0, 12).Draw(rt, "updates") {
				update(rt, s, w, name.Draw(rt, "set"))
			}
			tampered := rapid.IntRange(0, 3).Draw(rt, "tampering")
			for range tampered {
				// Most commands fit only some of the sets.
				ns.run(t, "sh", "-c", "ipset -! "+tamper(rt, w)+" || true")
			}
			if tampered > 0 {
				s.Invalidate()
			}
			if rapid.IntRange(0, 5).Draw(rt, "restart") == 0 {
				_ = s.Close()
				s = w.loaded(t, ns)
			}
			apply(t, s)
			if len(s.Refused()) > 0 {
				rt.Fatalf("refused: %+v", s.Refused())
			}
			got := slices.DeleteFunc(ns.save(t), func(line string) bool { return !strings.Contains(line, " flx-") })
			if d := cmp.Diff(strings.Join(w.lines(), "\n"), strings.Join(got, "\n")); d != "" {
				rt.Fatalf("ipset save (-want +got):\n%s", d)
			}
			if r := apply(t, s); r.Messages != 0 {
				rt.Fatalf("a second apply sent %+v", r)
			}
		}
		if r := apply(t, w.loaded(t, ns)); r.Messages != 0 {
			rt.Fatalf("the restart sent %+v", r)
		}
	})
}

// update changes the desired state.
func update(rt *rapid.T, s *Sets, w wish, name string) {
	set := w[name]
	switch kind := rapid.IntRange(0, 9).Draw(rt, "update"); {
	case set == nil || kind == 0:
		spec := ipsets.Set{
			Name:   name,
			Kind:   rapid.SampledFrom([]model.GroupKind{model.Addresses, model.Networks, model.AddressPorts}).Draw(rt, "kind"),
			Family: rapid.SampledFrom(model.Families()).Draw(rt, "family"),
		}
		s.CreateSet(spec)
		if set == nil || set.spec != spec {
			w[name] = &wishedSet{spec: spec, members: map[model.Member]bool{}}
		}
	case kind == 1:
		s.RemoveSet(name)
		delete(w, name)
	case kind < 7:
		m := drawMember(rt, set.spec)
		s.AddMembers(name, []model.Member{m})
		set.members[m] = true
	default:
		m := drawMember(rt, set.spec)
		s.RemoveMembers(name, []model.Member{m})
		delete(set.members, m)
	}
}

// Any order of the same updates, with applies anywhere, ends in the same sets.
func TestPermutations(t *testing.T) {
	ns := newNamespace(t)
	once := ns.open(t)
	loadExample(once)
	apply(t, once)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		ns.run(t, "ipset", "destroy")
		s := ns.open(t)
		// Each set's updates stay in order: it is created first.
		var queues [][]func()
		for _, spec := range []ipsets.Set{addresses4, addresses6, networks4, networks6, ports4, ports6} {
			queue := []func(){func() { s.CreateSet(spec) }}
			var adds []func()
			for m := range once.sets[spec.Name].members {
				adds = append(adds, func() { s.AddMembers(spec.Name, []model.Member{m}) })
			}
			r.Shuffle(len(adds), func(i, j int) { adds[i], adds[j] = adds[j], adds[i] })
			queues = append(queues, append(queue, adds...))
		}
		for len(queues) > 0 {
			i := r.IntN(len(queues))
			queues[i][0]()
			if queues[i] = queues[i][1:]; len(queues[i]) == 0 {
				queues = slices.Delete(queues, i, i+1)
			}
			if r.IntN(4) == 0 {
				apply(t, s)
			}
			if r.IntN(10) == 0 {
				s.Invalidate()
			}
		}
		apply(t, s)
		ns.want(t, savedExample)
		wantSilent(t, s)
	}
}
