package wanted_test

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/compare"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/live"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/tablestest"
	"github.com/felixlike/felixlike/test/truthtable"
)

// modelsOf returns a model of the first node for some steps of the truth table.
func modelsOf(t *testing.T, every int) []*control.Model {
	t.Helper()
	steps, err := truthtable.ReadFile("../../../../test/truthtable/testdata/sample.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var all []*control.Model
	for i := 0; i < len(steps); i += every {
		o := steps[i].Objects(model.IPv4)
		m, problems, err := wanted.FromEvents(wanted.Events(control.Objects{
			Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods, Policies: o.Policies, ClusterPolicies: o.ClusterPolicies,
		}), o.Nodes[0].Name, nil)
		if err != nil || len(problems) > 0 {
			t.Fatal(steps[i].String(), err, problems)
		}
		m.Settings.Masquerade = true
		all = append(all, m)
	}
	return all
}

func canonical(s *dump.State) *dump.State {
	return compare.Canonical(s, compare.Options{OnlyOurs: true})
}

func nothing(any) string { return "" }

// same fails the test where two states differ.
func same(t *testing.T, what string, before, after *dump.State) {
	t.Helper()
	sides := compare.Sides{Before: canonical(before), After: canonical(after), NoteBefore: nothing, NoteAfter: nothing}
	if diff := compare.Structure(sides, compare.Options{}); len(diff) > 0 {
		t.Errorf("%s: %d objects differ, the first: %+v", what, len(diff), diff[0])
	}
	text, err := compare.Text(sides, compare.Options{}, "before", "after")
	if err != nil || len(text) > 0 {
		t.Errorf("%s: %v\n%s", what, err, text[:min(len(text), 3000)])
	}
}

// program has a backend program a model in the namespace.
func program(t *testing.T, ns tablestest.Namespace, name string, m *control.Model) {
	t.Helper()
	b, err := backend.New(t.Context(), backend.Config{Name: name, Layout: m.Settings.NFTablesLayout, Node: m.Node, Masquerade: true, NetNS: ns.FD})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	for _, u := range m.Updates() {
		for _, manager := range b.Stage().Managers {
			manager.OnUpdate(u)
		}
	}
	for _, manager := range b.Stage().Managers {
		manager.CompleteDeferredWork()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if applied, err := b.Stage().Apply(ctx); err != nil || len(applied.Refused) > 0 {
		t.Fatal(err, applied.Refused)
	}
}

func netfilterBackends() []string {
	return []string{config.NFTables, config.IPTablesLegacy, config.IPTablesNFT}
}

// held reads a namespace by the tools.
func held(t *testing.T, ns tablestest.Namespace, backend string) ([]live.Part, *dump.State) {
	t.Helper()
	parts, err := live.Read(t.Context(), live.Node{NetNS: fmt.Sprintf("/proc/self/fd/%d", ns.FD)}, live.Options{Backend: backend, Services: true})
	if err != nil {
		t.Fatal(err)
	}
	s, err := live.Parse(parts)
	if err != nil {
		t.Fatal(err)
	}
	return parts, s
}

// What is wanted is what the drivers program, and what the tools list of it.
func TestWantedIsProgrammed(t *testing.T) {
	every := 5
	if testing.Short() {
		every = 20
	}
	models := modelsOf(t, every)
	for _, c := range []struct{ name, backend, layout string }{
		{config.NFTables, config.NFTables, config.LayoutRules},
		{"layout maps", config.NFTables, config.LayoutMaps},
		{config.IPTablesLegacy, config.IPTablesLegacy, ""},
		{config.IPTablesNFT, config.IPTablesNFT, ""},
	} {
		backend := c.backend
		t.Run(c.name, func(t *testing.T) {
			for i, m := range models {
				m.Settings.NFTablesLayout = c.layout
				ns := tablestest.NewNamespace(t, "nft", "iptables-save", "ipset")
				m.DenialsReported = i%2 == 0
				program(t, ns, backend, m)
				_, found := held(t, ns, backend)
				want, err := wanted.Of(m, backend)
				if err != nil {
					t.Fatal(err)
				}
				want.Flows = nil // no switch here
				same(t, fmt.Sprintf("model %d", i), found, want)
			}
		})
	}
}

// What was read, written and loaded elsewhere is the same again, with nothing that
// was not understood.
func TestRoundTrip(t *testing.T) {
	m := modelsOf(t, 1)
	for _, backend := range netfilterBackends() {
		t.Run(backend, func(t *testing.T) {
			for i := 3; i < len(m); i += len(m)/3 + 1 {
				from, to := tablestest.NewNamespace(t, "nft", "iptables-save", "ipset"), tablestest.NewNamespace(t)
				program(t, from, backend, m[i])
				_, before := held(t, from, backend)
				if n := before.Count(); n.Foreign > 0 || n.Rules == 0 {
					t.Fatalf("read %+v", n)
				}
				load(t, to, backend, before)
				_, after := held(t, to, backend)
				same(t, fmt.Sprintf("model %d", i), before, after)
			}
		})
	}
}

// load loads a state by the tools.
func load(t *testing.T, ns tablestest.Namespace, backend string, s *dump.State) {
	t.Helper()
	var in bytes.Buffer
	run := func(argv ...string) {
		t.Helper()
		cmd := exec.Command("ip", append([]string{"netns", "exec", ns.Name}, argv...)...)
		cmd.Stdin = strings.NewReader(in.String())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out[:min(len(out), 2000)])
		}
		in.Reset()
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if backend == config.NFTables {
		must(dump.WriteNFT(&in, s.Tables, dump.TextOptions{Counters: true}))
		run("nft", "-f", "-")
		return
	}
	must(dump.WriteIPSets(&in, s.IPSets, dump.TextOptions{}))
	run("ipset", "restore")
	for f, tool := range map[model.Family]string{model.IPv4: backend, model.IPv6: "ip6" + strings.TrimPrefix(backend, "ip")} {
		must(dump.WriteIPTables(&in, s.Tables, f, dump.TextOptions{Counters: true}))
		run(tool+"-restore", "--counters")
	}
}

// Any order of updates comes to the same.
func TestWantedIsDeterministic(t *testing.T) {
	for _, m := range modelsOf(t, 15) {
		turned := *m
		turned.Policies, turned.Groups, turned.Endpoints = slices.Clone(m.Policies), slices.Clone(m.Groups), slices.Clone(m.Endpoints)
		slices.Reverse(turned.Policies)
		slices.Reverse(turned.Groups)
		slices.Reverse(turned.Endpoints)
		for _, backend := range config.BackendNames() {
			a, err := wanted.Of(m, backend)
			if err != nil {
				t.Fatal(err)
			}
			b, err := wanted.Of(&turned, backend)
			if err != nil {
				t.Fatal(err)
			}
			same(t, backend, a, b)
		}
	}
}

func TestUnknownBackend(t *testing.T) {
	if _, err := wanted.Of(&control.Model{Node: "n"}, "pf"); err == nil || !strings.Contains(err.Error(), "is not one of nftables") {
		t.Error(err)
	}
}
