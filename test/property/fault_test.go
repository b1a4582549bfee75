package property

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/internal/seeded"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/nftables"
	"github.com/felixlike/felixlike/test/policytest"
)

// faults are refusals that the test adds to the kernel's own: some of the
// policies' chains, groups, and addresses of pods. The zero value is none.
type faults struct {
	seed uint64
	// oneIn is the share of refusals, one in oneIn; zero for none.
	oneIn uint64
	// unnamed faults do not name the refused object.
	unnamed bool
	// kept are entries of maps that the kernel has already. Their removal is
	// not refused: a map with such an entry would be closed as a whole.
	kept map[string]bool
}

var errRefused = errors.New("refused by the test")

func (b *testbed) drawFaults(rt *rapid.T) faults {
	f := faults{
		seed: rapid.Uint64().Draw(rt, "faults"), oneIn: rapid.Uint64Range(2, 30).Draw(rt, "one in"),
		unnamed: rapid.Bool().Draw(rt, "unnamed"), kept: map[string]bool{},
	}
	for _, s := range b.snapshots(rt) {
		for _, m := range s.Maps {
			for _, e := range m.Entries {
				f.kept[fmt.Sprintf("%s entry %s : %s", m.Name, e.Address, e.Verdict)] = true
			}
		}
	}
	return f
}

// snapshots reads the state of the sites' kernels.
func (b *testbed) snapshots(rt *rapid.T) map[string]*nftables.Snapshot {
	all := map[string]*nftables.Snapshot{}
	for name, r := range b.sites {
		s, err := nftables.New(nftables.Options{NetNS: r.plane().netns}).Snapshot(rt.Context())
		if err != nil {
			rt.Fatal(err)
		}
		all[name] = &s
	}
	return all
}

// refuses is the driver's fault hook.
func (f *faults) refuses(o nftables.ObjectError) error {
	if f.oneIn == 0 || !f.meets(o) {
		return nil
	}
	if f.unnamed {
		return fmt.Errorf("%w: %w", errRefused, nftables.ErrUnnamed)
	}
	return errRefused
}

func (f *faults) meets(o nftables.ObjectError) bool {
	name := o.Name
	switch o.Object {
	case "chain":
		if !strings.HasPrefix(name, "pin-") && !strings.HasPrefix(name, "pout-") && !strings.HasPrefix(name, "pods-") {
			return false
		}
		if f.chosen("only content "+name, 2) && (!strings.HasPrefix(o.Rule, "rule ") || strings.Contains(o.Rule, "refused: ")) {
			return false
		}
	case "set":
		if strings.HasPrefix(name, "pod-networks") {
			return false
		}
	case "map":
		if strings.HasPrefix(o.Rule, "one of ") {
			return true // which one is seen when each is sent by itself
		}
		entry := strings.Fields(o.Rule) // entry ADDRESS : VERDICT
		if len(entry) < 4 || entry[3] == "drop" || f.kept[name+" "+o.Rule] {
			return false
		}
		name = entry[1]
	default:
		return false
	}
	return f.chosen(name, f.oneIn)
}

// chosen decides by the name, the same way each time.
func (f *faults) chosen(name string, oneIn uint64) bool {
	h := fnv.New64a()
	fmt.Fprint(h, f.seed, name)
	return h.Sum64()%oneIn == 0
}

// state is the kernel's treatment of a pod's packets in one direction.
type state uint8

const (
	// asWanted: by its policies.
	asWanted state = iota
	// closed: everything is dropped.
	closed
)

// stateOf returns the treatment of an address, by the kernel's state. An open chain
// that jumps to a closed policy is an error. A common chain with rules decides for all pods, and may do so only where nothing is refused.
func stateOf(rt *rapid.T, s *nftables.Snapshot, d model.Direction, p oracle.Packet) state {
	address, common := p.Destination, rules.ChainCommonIn
	if d == model.Egress {
		address, common = p.Source, rules.ChainCommonOut
	}
	if c := s.Chain(common); c != nil && len(c.Rules) > 0 {
		return asWanted
	}
	verdict := "drop" // no endpoint has this address
	for _, m := range s.Maps {
		for _, e := range m.Entries {
			if m.Name == rules.DispatchMap(d, model.FamilyOf(address)) && e.Address == address.String() {
				verdict = e.Verdict
			}
		}
	}
	if verdict == "drop" {
		return closed
	}
	c := s.Chain(strings.TrimPrefix(verdict, "goto "))
	if c == nil || c.Name == rules.ChainAllowedOut {
		return asWanted
	}
	if isClosed(c) {
		return closed
	}
	for _, r := range c.Rules {
		if to, ok := strings.CutPrefix(r.Verdict, "jump "); ok && isClosed(s.Chain(to)) {
			rt.Errorf("chain %s asks %s, which is closed, and is not", c.Name, to)
		}
	}
	return asWanted
}

func isClosed(c *nftables.ChainSnapshot) bool {
	return len(c.Rules) == 1 && strings.HasPrefix(c.Rules[0].Comment, "refused: ") && c.Rules[0].Verdict == "drop"
}

// faultyBackend is a backend over a faulty kernel or switch.
type faultyBackend struct {
	backend.Backend
	name      string
	stage     backend.Stage
	forwarded func(managers.Forwarding) bool
}

func (b faultyBackend) Name() string         { return b.name }
func (b faultyBackend) Stage() backend.Stage { return b.stage }

func (b faultyBackend) Forwarded(f managers.Forwarding) bool { return b.forwarded(f) }

// inject replaces a dataplane's engine and backend by ones
// with a fault hook in the driver.
func (d *dataplane) inject(hook func(nftables.ObjectError) error) error {
	if err := d.close(); err != nil {
		return err
	}
	table := nftables.New(nftables.Options{NetNS: d.netns, Fault: hook})
	renderer := rules.NewRenderer(model.GatewayPort, rules.NFTablesNameLength)
	endpoints := managers.NewEndpointManager(renderer, table, table, managers.NewMapDispatcher(table))
	endpoints.SetCommonFrom(2) // as newDataplane
	*d = dataplane{node: d.node, engine: policy.New(d.node), kernel: d.kernel, attached: map[model.PodID][]netip.Addr{}, closers: []func() error{table.Close}, backend: faultyBackend{
		name: config.NFTables,
		stage: backend.Stage{
			Invalidate: table.Invalidate,
			Managers: []managers.Manager{
				managers.NewDeniedManager(table, renderer),
				managers.NewStaticManager(d.node, renderer, table, table),
				managers.NewIPSetManager(ipsets.WithRanges(table)),
				managers.NewPolicyManager(d.node, renderer, table),
				endpoints,
			},
			Apply: func(ctx context.Context) (backend.Applied, error) {
				res, err := table.Apply(ctx)
				if err == nil && len(res.Refused) > 0 && endpoints.LeaveCommonChains() {
					first := res.Messages
					res, err = table.Apply(ctx)
					res.Messages += first
				}
				return backend.Applied{Writes: res.Messages, Refused: res.Refused}, err
			},
		},
	}}
	return nil
}

// TestFaultsCloseWhatTheyConcern makes the kernel refuse objects at random. No packet
// passes that the oracle blocks. Packets that meet no closed chain or entry are
// judged as ever; those of closed pods do not pass, under any other
// policies. When the fault is gone and the agent restarts, the state is as desired.
func TestFaultsCloseWhatTheyConcern(t *testing.T) {
	t.Parallel()
	var fault faults
	b := newTestbed(t, config.NFTables)
	anew := func() error {
		return errors.Join(b.sites["node1"].plane().inject(fault.refuses), b.sites["node2"].plane().inject(fault.refuses))
	}
	if err := anew(); err != nil {
		t.Fatal(err)
	}
	seen := map[state]int{}
	seeded.Check(t, func(rt *rapid.T) {
		for range rapid.IntRange(1, 2).Draw(rt, "steps") {
			fault = b.drawFaults(rt)
			before := b.cluster
			b.cluster = crowdedCluster(rt)
			for _, name := range b.names() {
				b.sites[name].plane().become(before, b.cluster)
				b.sites[name].plane().settle(rt)
			}
			b.judgeFaulty(rt, seen)
		}
		fault = faults{}
		if err := anew(); err != nil {
			rt.Fatal(err)
		}
		c := b.cluster
		b.cluster = nil
		b.become(rt, c)
		b.judgeNew(rt, b.connections(policytest.Packets(rt, c)))
	})
	t.Logf("%d packets that no fault concerned, %d of closed pods", seen[asWanted], seen[closed])
	if seen[asWanted] == 0 || seen[closed] == 0 {
		t.Error("nothing was tested")
	}
}

// settle applies, and checks that another apply writes nothing.
func (d *dataplane) settle(rt *rapid.T) {
	for i := range 3 {
		if i == 2 {
			d.invalidate()
		}
		if done, err := d.apply(); err != nil || i > 0 && done.Writes > 0 {
			rt.Fatalf("%s: %v, another apply sent %d mutating messages", d.node, err, done.Writes)
		}
	}
}

// judgeFaulty opens connections, and counts the effects of faults on them.
func (b *testbed) judgeFaulty(rt *rapid.T, seen map[state]int) {
	snapshots := b.snapshots(rt)
	all := b.connections(policytest.Packets(rt, b.cluster))
	for i, c := range all {
		src, _ := locate(b.cluster, c.Source)
		dst, _ := locate(b.cluster, c.Destination)
		for j, h := range c.hops {
			worst := asWanted
			if src.pod && src.node == h.site {
				worst = stateOf(rt, snapshots[h.site], model.Egress, c.Packet)
			}
			if dst.pod && dst.node == h.site {
				worst = max(worst, stateOf(rt, snapshots[h.site], model.Ingress, c.Packet))
			}
			seen[worst]++
			all[i].hops[j].allowed = h.allowed && worst == asWanted
		}
	}
	b.send(rt, "with faults", all, there, func(h hop) bool { return h.allowed })
}
