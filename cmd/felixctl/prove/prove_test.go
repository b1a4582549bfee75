package prove

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/names"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/manifests"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/truthtable"
)

var nodeAddresses = []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}

const cases = "../../../test/cases/testdata"

// events returns the objects of a case.
func events(t *testing.T, name string) (all []datastore.Event) {
	t.Helper()
	archive, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := os.ReadFile(filepath.Join(cases, "cluster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(archive.Files, func(f txtar.File) bool { return f.Name == "cluster.yaml" }) {
		all, _ = manifests.Parse("cluster.yaml", shared)
	}
	for _, f := range archive.Files {
		if f.Name == "policy.yaml" || f.Name == "cluster.yaml" {
			more, _ := manifests.Parse(f.Name, f.Data)
			all = append(all, more...)
		}
	}
	return all
}

func modelOf(t *testing.T, all []datastore.Event, node string) *control.Model {
	t.Helper()
	i := slices.IndexFunc(all, func(e datastore.Event) bool { n, is := e.(datastore.NodeSet); return is && n.Node.Name == node })
	if i < 0 {
		t.Fatalf("there is no node %s", node)
	}
	m, _, err := wanted.FromEvents(all, node, &control.Model{
		Settings:     control.Settings{Masquerade: true, Userspace: true, TunnelPort: 6081, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}},
		LogsReported: true, HostAddresses: addressesOf(all[i].(datastore.NodeSet).Node),
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func stateOf(t fataler, m control.Model, backend string) *dump.State {
	if backend == "maps" {
		backend, m.Settings.NFTablesLayout = config.NFTables, config.LayoutMaps
	} else {
		m.Settings.NFTablesLayout = config.LayoutRules
	}
	s, err := wanted.Of(&m, backend)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// compared returns what two states differ in, for packets of a family.
func compared(f model.Family, m *control.Model, a, b *dump.State) ([]Difference, error) {
	p := &proof{models: []*control.Model{m}, names: names.Of(m), found: map[[2]string]*difference{}}
	x, y := p.withoutLearned(Side{a, m}, 'A'), p.withoutLearned(Side{b, m}, 'B')
	same, err := p.sameFlows(x, y)
	if err != nil {
		return nil, err
	}
	s, err := p.family(f, same, x, y)
	if err != nil {
		return nil, err
	}
	p.conclude(s)
	return p.Differences, nil
}

// fataler is a test, or a check of random draws.
type fataler interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// expectEqual proves that all backends do the same, but for the differences that are known.
func expectEqual(t fataler, m *control.Model, known func(backend string, d Difference) bool) {
	first := stateOf(t, *m, config.NFTables)
	for _, backend := range []string{"maps", config.IPTablesNFT, config.OpenFlow} {
		other := stateOf(t, *m, backend)
		for _, f := range model.Families() {
			differences, err := compared(f, m, first, other)
			if err != nil {
				t.Fatal(backend, err)
			}
			for _, d := range differences {
				if !known(backend, d) {
					t.Errorf("%s: %s, %s: %s: %s, not %s\n%v", backend, d.Way, d.Connection, d.Packet, d.B, d.A, d.Regions)
				}
			}
		}
	}
}

// TestCasesAreEqual proves for each golden case that the backends do the same.
func TestCasesAreEqual(t *testing.T) {
	all, err := filepath.Glob(cases + "/*.txtar")
	if err != nil || len(all) == 0 {
		t.Fatal(err)
	}
	for _, name := range all {
		t.Run(filepath.Base(name), func(t *testing.T) {
			all := events(t, name)
			for _, e := range all {
				if n, is := e.(datastore.NodeSet); is {
					expectEqual(t, modelOf(t, all, n.Node.Name), func(string, Difference) bool { return false })
				}
			}
		})
	}
}

// TestTruthTablesAreEqual proves for each step of the truth tables that the backends do the same.
func TestTruthTablesAreEqual(t *testing.T) {
	steps := 0
	for _, name := range []string{"sample", "tiers", "antrea", "hosts"} {
		all, err := truthtable.ReadFile("../../../test/truthtable/testdata/" + name + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		for i, step := range all {
			if testing.Short() && i%4 != 0 {
				continue
			}
			o := step.Objects(model.Families()[i%2])
			c := &oracle.Cluster{Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods, Policies: o.Policies, ClusterPolicies: o.ClusterPolicies, Antrea: o.Antrea}
			expectEqual(t, worldOf(t, c, o.Nodes[i%len(o.Nodes)]), answersOnly)
			steps++
		}
	}
	t.Logf("%d steps", steps)
}

// TestHairpinFromOutside: openflow drops what comes from outside with the source that it gives packets of a pod to itself, and other
// backends judge it by policy (docs/reference/limits/proofs.md). The proof leaves these packets out.
func TestHairpinFromOutside(t *testing.T) {
	m := modelOf(t, events(t, filepath.Join(cases, "no-policy.txtar")), "n1")
	for backend, want := range map[string]bool{config.NFTables: true, config.IPTablesNFT: true, config.OpenFlow: false} {
		st := stateOf(t, *m, backend)
		s := newSpaceFor(model.IPv6, []*control.Model{m}, prefixesOf(m), st)
		n, err := newNode(s, m, st)
		if err != nil {
			t.Fatal(err)
		}
		fates, err := n.host(uplink, n.and(n.prefixes(source, hairpins()), n.and(n.possible, n.pods)), "", 0)
		if err != nil {
			t.Fatal(err)
		}
		through := false
		for f := range fates {
			through = through || strings.HasPrefix(f.to, "to the pod ")
		}
		if through != want {
			t.Errorf("%s: through %v: %v", backend, through, slices.Collect(maps.Keys(fates)))
		}
	}
}
