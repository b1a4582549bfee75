package cases

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/dump/compare"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/live"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/names"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/tablestest"
)

// The kernel takes the state of the cases, and lists the same.
func TestKernelHoldsTheCases(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, backend := range []string{config.NFTables, config.IPTablesLegacy, config.IPTablesNFT} {
		t.Run(backend, func(t *testing.T) {
			for _, path := range paths {
				m := readCase(t, path).with.model(t, node)
				ns := tablestest.NewNamespace(t, "nft", "iptables-save", "ipset")
				program(t, ns, backend, m)
				parts, err := live.Read(t.Context(), live.Node{NetNS: fmt.Sprintf("/proc/self/fd/%d", ns.FD)}, live.Options{Backend: backend})
				if err != nil {
					t.Fatal(err)
				}
				holds, err := live.Parse(parts)
				if err != nil {
					t.Fatal(err)
				}
				want, err := wanted.Of(m, backend)
				if err != nil {
					t.Fatal(err)
				}
				want.Flows = nil // no switch here
				o := compare.Options{OnlyOurs: true}
				note := names.Of(m).Note
				sides := compare.Sides{Before: compare.Canonical(want, o), After: compare.Canonical(holds, o), NoteBefore: note, NoteAfter: note}
				text, err := compare.Text(sides, o, "wanted", "kernel")
				if err != nil || len(text) > 0 {
					t.Errorf("%s: %v\n%s", path, err, text)
				}
			}
		})
	}
}

// program has a backend program a model in a namespace.
func program(t *testing.T, ns tablestest.Namespace, name string, m *control.Model) {
	t.Helper()
	b, err := backend.New(t.Context(), backend.Config{Name: name, Node: m.Node, Masquerade: m.Settings.Masquerade, NetNS: ns.FD})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	hosts := backend.NewHosts(backend.Config{NetNS: ns.FD}, *m.Failsafe)
	hosts.Attempt = func(_, _ *model.HostPolicies) error { return nil }
	hosts.Programmed = func(*model.HostPolicies, string) {}
	hosts.Off = func() bool { return false }
	for _, s := range []backend.Stage{b.Stage(), hosts.Stage()} {
		for _, manager := range s.Managers {
			for _, u := range m.Updates() {
				manager.OnUpdate(u)
			}
			manager.CompleteDeferredWork()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if done, err := s.Apply(ctx); err != nil || len(done.Refused) > 0 {
			t.Fatal(err, done.Refused)
		}
	}
}
