package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/hosts/boot"
	"github.com/felixlike/felixlike/felixlike/leases"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/tablestest"
)

// conditions stands for the API server with one Node.
type conditions struct {
	mu sync.Mutex
	// has is the condition, wrote the statuses and reasons that were written, asked the number of requests, fails their error.
	has   *corev1.NodeCondition
	wrote []string
	asked int
	fails error
}

func (c *conditions) do(f func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.fails == nil {
		f()
	}
	return c.fails
}

func (c *conditions) NodeCondition(context.Context, corev1.NodeConditionType) (has *corev1.NodeCondition, err error) {
	err = c.do(func() { has = c.has })
	return has, err
}

func (c *conditions) SetNodeCondition(_ context.Context, to corev1.NodeCondition) error {
	return c.do(func() { c.has, c.wrote = &to, append(c.wrote, string(to.Status)+" "+to.Reason) })
}

func (c *conditions) RemoveNodeCondition(context.Context, corev1.NodeConditionType) error {
	return c.do(func() { c.has, c.wrote = nil, append(c.wrote, "removed") })
}

func (c *conditions) seen() (has *corev1.NodeCondition, wrote []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.has, slices.Clone(c.wrote)
}

func (c *conditions) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fails = err
}

// read reports whether an agent has read the condition.
func (c *conditions) read() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked > 0
}

func (c *conditions) awaits(t *testing.T, message string, wrote ...string) *corev1.NodeCondition {
	t.Helper()
	eventually.True(t, strings.Join(wrote, ", "), func() bool { _, all := c.seen(); return slices.Equal(all, wrote) })
	has, _ := c.seen()
	if got := ""; has != nil {
		if got = has.Message; !strings.HasPrefix(got, message) || has.Type != ConditionType || has.LastTransitionTime.IsZero() {
			t.Errorf("condition %+v, want message %q", has, message)
		}
	} else if message != "" {
		t.Errorf("no condition, want message %q", message)
	}
	return has
}

// TestCondition: the Node of a node with policies has a condition, which is written once for each change, and names the policies. An agent that starts leaves
// it as it is, and removes it if no policy applies any more. A datastore that takes no writes delays nothing but the condition.
func TestCondition(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := &conditions{}
	begin := func(t *testing.T, reach func(context.Context) error) *agent {
		t.Helper()
		return w.start(t, reach, time.Second, func(o *Options) { o.Conditions = c })
	}
	const benign = "{priority: 1, appliedTo: [{nodeSelector: {}}], egress: [{action: Drop, ports: [{port: 7000}]}]}"
	gone := datastore.AntreaDeleted{ID: antrea.ID{Kind: antrea.KindClusterNetworkPolicy, Name: "out"}}
	t.Run("changes", func(t *testing.T) {
		a := begin(t, w.api)
		a.Begin(t, policyOf(t, "in", in))
		confirmed := c.awaits(t, "in force: clusternetworkpolicy.crd.antrea.io/in", "True PoliciesConfirmed")
		a.Source.Send(true, policyOf(t, "out", out))
		c.awaits(t, "withdrawn: clusternetworkpolicy.crd.antrea.io/out. In force: as last confirmed: clusternetworkpolicy.crd.antrea.io/in. Why: with it, this node could not reach the API server for 1s", "True PoliciesConfirmed", "False PolicyWithdrawn")
		a.Source.Send(true, policyOf(t, "out", benign))
		again := c.awaits(t, "in force: clusternetworkpolicy.crd.antrea.io/in, clusternetworkpolicy.crd.antrea.io/out", "True PoliciesConfirmed", "False PolicyWithdrawn", "True PoliciesConfirmed")
		if !again.LastTransitionTime.After(confirmed.LastTransitionTime.Time) {
			t.Errorf("transitions %s and %s", confirmed.LastTransitionTime, again.LastTransitionTime)
		}
		c.fail(errors.New("no API server"))
		a.Source.Send(true, gone)
		a.Programmed(t)
		a.awaits(t, control.HostsConfirmed)
		eventually.True(t, "the policy is out of force", func() bool {
			_, err := w.dial("node", "192.168.60.2:7000", time.Second)
			return err != nil && strings.Contains(err.Error(), "refused")
		})
		c.fail(nil)
		kept := c.awaits(t, "in force: clusternetworkpolicy.crd.antrea.io/in", "True PoliciesConfirmed", "False PolicyWithdrawn", "True PoliciesConfirmed", "True PoliciesConfirmed")
		if kept.LastTransitionTime != again.LastTransitionTime {
			t.Error("a transition although the status is the same")
		}
		marker := filepath.Join(w.dir, boot.OffFile)
		if err := os.WriteFile(marker, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		c.awaits(t, "felixctl hosts off has written", "True PoliciesConfirmed", "False PolicyWithdrawn", "True PoliciesConfirmed", "True PoliciesConfirmed", "False TurnedOff")
		if err := os.Remove(marker); err != nil {
			t.Fatal(err)
		}
		c.awaits(t, "in force", "True PoliciesConfirmed", "False PolicyWithdrawn", "True PoliciesConfirmed", "True PoliciesConfirmed", "False TurnedOff", "True PoliciesConfirmed")
	})
	c.wrote = nil
	t.Run("restarted", func(t *testing.T) {
		c.asked = 0
		a := begin(t, w.api)
		a.Begin(t, policyOf(t, "in", in))
		eventually.True(t, "it was read", c.read)
		a.Source.Send(true, policyOf(t, "out", benign))
		c.awaits(t, "in force: clusternetworkpolicy.crd.antrea.io/in, clusternetworkpolicy.crd.antrea.io/out", "True PoliciesConfirmed") // the first write
	})
	c.wrote = nil
	t.Run("without policies", func(t *testing.T) {
		begin(t, w.api).Begin(t)
		c.awaits(t, "", "removed")
	})
	c.wrote = nil
	t.Run("never", func(t *testing.T) {
		c.asked = 0
		a := begin(t, w.api)
		a.Begin(t)
		eventually.True(t, "it was read", c.read)
		a.Source.Send(true, policyOf(t, "in", in))
		c.awaits(t, "in force: clusternetworkpolicy.crd.antrea.io/in", "True PoliciesConfirmed") // the first write
	})
}

// TestConditionSettles: two looks in a row have to agree, the first look on its own does not count, and what changes after failures is written
// as soon as without. Another status does not wait until its message settles.
func TestConditionSettles(t *testing.T) {
	c := &conditions{has: conditionOf(&control.Hosts{State: control.HostsConfirmed, Policies: []string{"a"}})}
	k := &keeper{Module: &Module{Options: Options{Conditions: c, Log: slog.New(slog.DiscardHandler)}}, wait: conditionEvery}
	k.said = leases.Said{Log: k.Log}
	look := func(want *corev1.NodeCondition) { k.look(t.Context(), want) }
	if look(nil); c.asked != 0 {
		t.Error("removed at the first look")
	}
	look(nil)
	c.awaits(t, "", "removed")
	failed := func(why string) *corev1.NodeCondition {
		return conditionOf(&control.Hosts{State: control.HostsNotProgrammed, Policies: []string{"a"}, Reason: why})
	}
	c.fail(errors.New("no API server"))
	for range 10 {
		look(failed("no memory"))
	}
	if k.wait != conditionLater {
		t.Errorf("after failures: %s", k.wait)
	}
	c.fail(nil)
	if look(conditionOf(&control.Hosts{State: control.HostsConfirmed, Policies: []string{"a"}})); k.wait != conditionEvery {
		t.Errorf("not settled: %s", k.wait)
	}
	for i := range 3 {
		look(failed(fmt.Sprintf("attempt %d", i)))
	}
	c.awaits(t, "not programmed: attempt 1.", "removed", "Unknown NotProgrammed")
}

// TestNotProgrammed: if the kernel does not let the agent program the table, confirmed policies are not in force. Status and the condition say so, with the error, until
// they are.
func TestNotProgrammed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := &conditions{}
	begin := func(t *testing.T) *agent {
		t.Helper()
		a := w.start(t, w.api, time.Second, func(o *Options) { o.Conditions = c })
		a.Begin(t, policyOf(t, "in", in))
		return a
	}
	t.Run("confirmed", func(t *testing.T) {
		begin(t)
		c.awaits(t, "in force: clusternetworkpolicy.crd.antrea.io/in", "True PoliciesConfirmed")
	})
	w.at["node"].Run(t, "nft", "delete", "table", "inet", "felixlike-hosts")
	owner := exec.Command("ip", "netns", "exec", w.at["node"].Name, "nft", "-i") // the kernel lets nobody else change its tables
	input, err := owner.StdinPipe()
	if err == nil {
		err = owner.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	release := sync.OnceFunc(func() { _ = errors.Join(input.Close(), owner.Wait()) })
	defer release()
	if _, err := io.WriteString(input, "add table inet felixlike-hosts { flags owner; }\n"); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "the table of another program", func() bool { return strings.Contains(w.table(), "owner") })
	a := begin(t)
	a.awaits(t, control.HostsNotProgrammed)
	if h := a.hosts(t); !strings.Contains(h.Reason, "operation not permitted") || w.reaches("peer", "node", "80") != "46" {
		t.Errorf("status %+v", h)
	}
	has := c.awaits(t, "not programmed: ", "True PoliciesConfirmed", "Unknown NotProgrammed")
	if !strings.Contains(has.Message, "operation not permitted") || !strings.HasSuffix(has.Message, "Wanted: clusternetworkpolicy.crd.antrea.io/in") {
		t.Errorf("message %q", has.Message)
	}
	release()
	c.awaits(t, "in force: clusternetworkpolicy.crd.antrea.io/in", "True PoliciesConfirmed", "Unknown NotProgrammed", "True PoliciesConfirmed")
	if w.reaches("peer", "node", "80") != "" || a.hosts(t).State != control.HostsConfirmed {
		t.Errorf("open, status %+v", a.hosts(t))
	}
}

// TestRefusedInPart: confirmed policies are not in force before the agent has programmed them, nor if the kernel refuses a part of them, as after an update of the kernel.
func TestRefusedInPart(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	o := Options{Dir: t.TempDir(), Table: backend.NewHosts(backend.Config{Node: "node1", NetNS: ns.FD}, failsafe()), Log: slog.New(slog.DiscardHandler)}
	m := New(&driver.View{}, o)
	p := &model.Policy{
		ID:      model.PolicyID{Tier: model.TierAdmin, API: model.AntreaCluster, Name: "all"},
		Ingress: []model.Rule{{Name: "ingress[0]", Action: model.Deny, Peers: []model.GroupID{"anone"}, AnyPort: true}}, // the group has no set
	}
	update := model.HostPoliciesUpdate{Policies: &model.HostPolicies{Ingress: model.Applied{Admin: []model.PolicyID{p.ID}}, Policies: []*model.Policy{p}}}
	m.record.Confirmed = update.Policies
	m.onUpdate(update, 0)
	expect := func(why string) {
		t.Helper()
		var s control.Status
		m.status(&s)
		c := conditionOf(s.Hosts)
		if s.Hosts.State != control.HostsNotProgrammed || c.Status != corev1.ConditionUnknown || c.Reason != ReasonNotProgrammed || !strings.Contains(c.Message, why) {
			t.Errorf("status %+v, condition %+v, want %q", s.Hosts, c, why)
		}
	}
	expect("since it started")
	stage := o.Table.Stage()
	for _, manager := range stage.Managers {
		manager.OnUpdate(update)
		manager.CompleteDeferredWork()
	}
	if _, err := stage.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect("ain-all")
}

// TestConditionOfUnconfirmed: policies that are not confirmed for some time are Unknown, and a message has a bound.
func TestConditionOfUnconfirmed(t *testing.T) {
	h := &control.Hosts{State: control.HostsUnconfirmed, Policies: []string{"a", "b"}}
	if c := conditionOf(h); c.Status != corev1.ConditionUnknown || c.Reason != ReasonUnconfirmed || c.Message != "not confirmed yet: a, b" {
		t.Errorf("%+v", c)
	}
	h.Policies = []string{strings.Repeat("ä", maxMessage)}
	if c := conditionOf(h); len(c.Message) > maxMessage || !strings.HasSuffix(c.Message, "ä...") {
		t.Errorf("%d bytes: %q", len(c.Message), c.Message[len(c.Message)-9:])
	}
	for _, h := range []*control.Hosts{nil, {State: control.HostsOff}} {
		if c := conditionOf(h); c != nil {
			t.Errorf("without a policy: %+v", c)
		}
	}
}
