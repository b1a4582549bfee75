package iptables

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// rewriter rewrites its chains again and again, as a program on a node does.
type rewriter struct {
	name string
	// round returns the commands of a round for both families.
	round func(n int) string
	done  int
	err   error
}

// run rewrites until stop is closed, and at least a few times.
func (w *rewriter) run(h host, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			if w.done > 3 {
				return
			}
		default:
		}
		for _, f := range model.Families() {
			c := exec.Command("ip", "netns", "exec", h.Name, h.tool(f, "restore"), "--noflush", "--wait=5")
			c.Stdin = strings.NewReader(w.round(w.done))
			if out, err := c.CombinedOutput(); err != nil {
				w.err = fmt.Errorf("%s, round %d: %w\n%s", w.name, w.done, err, out)
				return
			}
		}
		w.done++
	}
}

// kubeProxy rewrites its service chains in the filter and nat tables, as
// kube-proxy does at each change of a Service.
func kubeProxy(n int) string {
	var b strings.Builder
	for _, table := range []string{"filter", "nat"} {
		fmt.Fprintf(&b, "*%s\n:KUBE-SERVICES - [0:0]\n", table)
		for i := range 20 + n%20 {
			fmt.Fprintf(&b, ":KUBE-SVC-%d - [0:0]\n-A KUBE-SERVICES -p tcp -m tcp --dport %d -j KUBE-SVC-%d\n", i, 1000+i, i)
			fmt.Fprintf(&b, "-A KUBE-SVC-%d -m comment --comment \"ns/service:%d flx-forward\" -j RETURN\n", i, n)
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// docker puts its jump to the top of FORWARD again, before all others.
func docker(n int) string {
	return fmt.Sprintf("*filter\n:DOCKER-USER - [0:0]\n-A DOCKER-USER -m mark --mark %#x -j RETURN\n-D FORWARD -j DOCKER-USER\n-I FORWARD 1 -j DOCKER-USER\nCOMMIT\n", n+1)
}

// beside creates the chains of other programs before they begin to rewrite them.
func (h host) beside(t *testing.T) {
	t.Helper()
	h.others(t)
	h.table(t, "filter", ":KUBE-SERVICES - [0:0]")
	h.table(t, "nat", ":KUBE-SERVICES - [0:0]", "-A PREROUTING -j KUBE-SERVICES")
}

// While other programs rewrite their chains and displace ours all the time,
// every Apply ends well, ours are right, and theirs are as they left them.
func TestCoexistence(t *testing.T) {
	eachVariant(t, func(t *testing.T, v Variant) {
		// The lock is this test's own: others have work to do on this host.
		t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
		h := newHost(t, v)
		h.beside(t)
		table := h.open(t)
		loadExample(table)
		apply(t, table)

		writers := []*rewriter{{name: "kube-proxy", round: kubeProxy}, {name: "docker", round: docker}}
		stop := make(chan struct{})
		var running sync.WaitGroup
		for _, w := range writers {
			running.Go(func() { w.run(h, stop) })
		}
		for i := range 40 {
			if !applyBesideOthers(t, table, i) {
				break
			}
		}
		close(stop)
		running.Wait()
		for _, w := range writers {
			if w.err != nil {
				t.Error(w.err)
			}
			t.Logf("%s: %d rounds", w.name, w.done)
		}
		t.Logf("%d restores, %d saves", table.tools.restores, table.tools.saves)

		table.Invalidate()
		loadExample(table)
		apply(t, table)
		for _, f := range model.Families() {
			if got := h.targets(t, f, "FORWARD"); got[0] != "flx-forward" {
				t.Errorf("FORWARD of IPv%s leads to %v", f, got)
			}
		}
		table.Invalidate()
		wantSilent(t, table)
		if err := table.Remove(t.Context()); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(alone(t, v, writers), h.state(t)); diff != "" {
			t.Errorf("theirs (-alone +beside ours):\n%s", diff)
		}
	})
}

// applyBesideOthers changes a few rules and reports whether all went well.
func applyBesideOthers(t *testing.T, table *Table, i int) bool {
	t.Helper()
	var rules []tables.Rule
	for n := range i % 7 {
		rules = append(rules, rule(tables.Return{}, fmt.Sprintf("edit %d", i/2*n)))
	}
	table.UpdateChain(tables.Chain{Name: "pin-x/base-1", Rules: rules})
	forward := *table.chains["forward"].desired
	forward.Rules = append([]tables.Rule{rule(tables.Return{}, fmt.Sprint("edit ", i), proto(model.SCTP))}, forward.Rules[len(forward.Rules)-3:]...)
	table.UpdateChain(forward)
	if i%4 == 0 {
		table.Invalidate()
	}
	r, err := table.Apply(t.Context())
	if err != nil || len(r.Refused) != 0 {
		t.Errorf("apply %d: %v, %+v", i, err, r)
		return false
	}
	for _, what := range r.Repaired {
		if what.Name != "FORWARD" {
			t.Errorf("apply %d: somebody has changed a chain of ours: %+v", i, what)
		}
	}
	return true
}

// alone returns the final state if only the writers write.
func alone(t *testing.T, v Variant, writers []*rewriter) string {
	t.Helper()
	h := newHost(t, v)
	h.beside(t)
	for _, w := range writers {
		for n := range w.done {
			if n >= 40 && n < w.done-40 {
				continue // it makes no difference after all service chains were there
			}
			for _, f := range model.Families() {
				h.restore(t, f, w.round(n))
			}
		}
	}
	return h.state(t)
}

// An unreadable table without a chain of ours has nothing to remove.
func TestRemoveBesideAnUnreadableTable(t *testing.T) {
	h := newHost(t, NFT)
	h.Run(t, "nft", "add table ip filter")
	h.Run(t, "nft", "add chain ip filter foreign")
	h.Run(t, "nft", "add rule ip filter foreign meta mark set numgen inc mod 2")
	if err := h.open(t).Remove(t.Context()); err != nil {
		t.Error(err)
	}
	if got := h.Run(t, "nft", "list", "table", "ip", "filter"); !strings.Contains(got, "numgen") {
		t.Errorf("what others have is gone:\n%s", got)
	}
}
