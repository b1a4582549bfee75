package hosts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/leases"
	"github.com/felixlike/felixlike/test/eventually"
)

// kubelet renews a Lease over new connections to another port of the API server than the agent's, 80, four times a second.
type kubelet struct {
	*world
	dead atomic.Bool
	mu   sync.Mutex
	at   time.Time
	// fault is the error for who reads the Lease.
	fault error
	reads atomic.Int32
}

func (w *world) kubelet(t *testing.T) *kubelet {
	k := &kubelet{world: w}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for pause(ctx, 250*time.Millisecond) {
			if now := time.Now(); !k.dead.Load() {
				if c, err := w.dial("node", "192.168.60.2:80", 300*time.Millisecond); err == nil {
					_ = c.Close()
					k.mu.Lock()
					k.at = now
					k.mu.Unlock()
				}
			}
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	eventually.True(t, "kubelet renews its Lease", func() bool { return !k.renewed().IsZero() })
	return k
}

func (k *kubelet) renewed() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.at
}

func (k *kubelet) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fault = err
}

// lease is the option of an agent that reads the Lease, which lasts for 8 s: in 4 s kubelet renews it.
func (k *kubelet) lease(o *Options) {
	o.Lease = func(context.Context) (*leases.Lease, error) {
		k.reads.Add(1)
		k.mu.Lock()
		defer k.mu.Unlock()
		seconds := int32(8)
		return &leases.Lease{Name: "node1", Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &metav1.MicroTime{Time: k.at}}}, k.fault
	}
}

// cutKubelet drops what kubelet needs, and nothing that the agent needs; the second is another policy that does.
const (
	cutKubelet = "{priority: 1, appliedTo: [{nodeSelector: {}}], egress: [{action: Drop, ports: [{port: 80}]}]}"
	cutMore    = "{priority: 1, appliedTo: [{nodeSelector: {}}], egress: [{action: Drop, ports: [{port: 80}, {port: 81}]}]}"
)

// TestKubeletCut: a policy with which kubelet does not renew the Lease of the node is withdrawn, by name, although the agent reaches the API server. It stays
// withdrawn once kubelet renews without it, and an agent that starts in the trial withdraws it, too.
func TestKubeletCut(t *testing.T) {
	w := newWorld(t)
	k := w.kubelet(t)
	withdrawn := func(t *testing.T, a *agent, policy string) {
		t.Helper()
		a.awaits(t, control.HostsWithdrawn)
		h := a.hosts(t)
		if strings.Join(h.Withdrawn, " ") != "clusternetworkpolicy.crd.antrea.io/"+policy || strings.Join(h.Confirmed, " ") != "clusternetworkpolicy.crd.antrea.io/in" ||
			!strings.Contains(h.Reason, "kubelet has not renewed the Lease kube-node-lease/node1 (last at ") || !strings.Contains(h.Reason, "while the agent reached the API server") {
			t.Errorf("status %+v", h)
		}
		eventually.True(t, "kubelet is the proof, the second time", func() bool { r := w.record(); return r.Withdrawn != "" && r.Kubelet && !r.Unproven })
		if got := w.reaches("peer", "node", "80"); got != "" {
			t.Errorf("the confirmed policy is not in force: open in families %q", got)
		}
	}
	t.Run("live", func(t *testing.T) {
		a := w.start(t, w.api, time.Second, k.lease)
		a.Begin(t, policyOf(t, "in", in))
		a.awaits(t, control.HostsConfirmed)
		a.Source.Send(true, policyOf(t, "cut", cutKubelet))
		eventually.True(t, "cut off", func() bool { return w.reaches("node", "peer", "80") == "" })
		withdrawn(t, a, "cut")
	})
	t.Run("ends in the trial", func(t *testing.T) {
		a := w.start(t, w.api, time.Hour, k.lease)
		a.Begin(t, policyOf(t, "in", in), policyOf(t, "cut", cutMore))
		eventually.True(t, "cut off", func() bool { return w.reaches("node", "peer", "80") == "" })
		a.awaits(t, control.HostsUnconfirmed)
		// Longer than the Lease says: for an agent that only looked at its age, kubelet was away before.
		eventually.True(t, "kubelet is away for some time", func() bool { return time.Since(k.renewed()) > 5*time.Second })
	})
	t.Run("starts in the trial", func(t *testing.T) {
		a := w.start(t, w.api, time.Second, k.lease)
		a.Begin(t, policyOf(t, "in", in), policyOf(t, "cut", cutMore))
		withdrawn(t, a, "cut")
	})
}

// TestKubeletRenews: policies are confirmed only after kubelet has renewed its Lease with them.
func TestKubeletRenews(t *testing.T) {
	w := newWorld(t)
	k := w.kubelet(t)
	a := w.start(t, w.api, time.Hour, k.lease)
	a.Begin(t)
	k.dead.Store(true)
	a.Source.Send(true, policyOf(t, "in", in))
	eventually.True(t, "in force", func() bool { return w.reaches("peer", "node", "80") == "" })
	reads := k.reads.Load()
	eventually.True(t, "the Lease is read with the policy", func() bool { return k.reads.Load() > reads+1 })
	if h := a.hosts(t); h.State != control.HostsUnconfirmed {
		t.Errorf("%s before kubelet has renewed", h.State)
	}
	k.dead.Store(false)
	a.awaits(t, control.HostsConfirmed)
}

// TestNoKubelet: the agent's own connections alone confirm policies if kubelet did not renew its Lease before them, or if the Lease cannot be read.
// One that is only late is read again for a while.
func TestNoKubelet(t *testing.T) {
	w := newWorld(t)
	k := w.kubelet(t)
	k.dead.Store(true)
	eventually.True(t, "kubelet is away for some time", func() bool { return time.Since(k.renewed()) > 4*time.Second })
	a := w.start(t, w.api, time.Second, k.lease)
	a.Begin(t, policyOf(t, "in", in))
	a.awaits(t, control.HostsConfirmed)
	k.dead.Store(false)
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	for i, fault := range []error{apierrors.NewNotFound(leases, "node1"), apierrors.NewForbidden(leases, "node1", errors.New("no"))} {
		k.fail(fmt.Errorf("get the Lease node1: %w", fault))
		a.Source.Send(true, policyOf(t, "cut", strings.Replace(cutKubelet, "80", fmt.Sprintf("80, endPort: %d", 81+i), 1)))
		eventually.True(t, "confirmed", func() bool {
			h := a.hosts(t)
			return h.State == control.HostsConfirmed && len(h.Policies) == 2 && strings.Contains(w.table(), fmt.Sprintf("80-%d", 81+i))
		})
	}
	k.fail(errors.New("late"))
	a.Source.Send(true, policyOf(t, "cut", strings.Replace(cutKubelet, "80", "9000", 1)))
	a.awaits(t, control.HostsUnconfirmed)
	a.awaits(t, control.HostsConfirmed) // it stayed so for the time that a trial may last
}

// TestKubeletAway: if kubelet ends in a trial for a reason of its own, the policies are tried again once it renews its Lease.
func TestKubeletAway(t *testing.T) {
	w := newWorld(t)
	k := w.kubelet(t)
	a := w.start(t, w.api, time.Second, k.lease)
	a.Begin(t)
	k.dead.Store(true)
	a.Source.Send(true, policyOf(t, "in", in))
	a.awaits(t, control.HostsWithdrawn)
	eventually.True(t, "recorded without proof", func() bool { r := w.record(); return r.Withdrawn != "" && r.Unproven && r.Kubelet })
	notices, err := a.Driver.Notices(t.Context())
	if err != nil || len(notices) != 1 || !strings.HasSuffix(notices[0].Reason, "or once kubelet has renewed its Lease for some time.") {
		t.Errorf("notices %+v, %v", notices, err)
	}
	eventually.True(t, "found to be without proof", func() bool { return time.Since(k.renewed()) > 10*time.Second })
	if r := w.record(); r.Retries != 0 || r.Withdrawn == "" {
		t.Errorf("tried again without kubelet: %+v", r)
	}
	k.dead.Store(false)
	a.awaits(t, control.HostsConfirmed)
}

// TestRenewalOf: kubelet renews four times in the duration of its Lease, 40 s if that says nothing.
func TestRenewalOf(t *testing.T) {
	seconds := int32(120)
	for _, test := range []struct {
		spec coordinationv1.LeaseSpec
		want time.Duration
	}{{coordinationv1.LeaseSpec{}, 20 * time.Second}, {coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds}, time.Minute}} {
		if r := renewalOf(&leases.Lease{Name: "n", Spec: test.spec}); r.patience() != test.want || !r.at.IsZero() {
			t.Errorf("%+v", r)
		}
	}
}

// TestLeft: an outage of the API server in a trial does not count as time without a renewal, nor does time before the last renewal. But outages again
// and again do not keep a policy in its trial for ever.
func TestLeft(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1000, 0).Add(time.Duration(seconds) * time.Second) }
	lease := func(renewed int, period time.Duration) error { return &notRenewed{renewal{"n", at(renewed), period}} }
	away, fault := errors.New("away"), &unread{errors.New("fault")}
	for _, test := range []struct {
		name  string
		looks map[int]error
		last  error
		now   int
		left  time.Duration
	}{
		{"kubelet alone", map[int]error{1: lease(0, 10*time.Second)}, lease(0, 10*time.Second), 30, -5 * time.Second},
		{"kubelet after an outage", map[int]error{1: away, 20: away, 21: lease(0, 10*time.Second)}, lease(0, 10*time.Second), 30, 15 * time.Second},
		{"kubelet after a fault", map[int]error{20: fault, 21: lease(0, 10*time.Second)}, lease(0, 10*time.Second), 30, 15 * time.Second},
		{"kubelet between outages", map[int]error{20: away, 40: away, 60: away, 85: away}, lease(0, 10*time.Second), 90, -15 * time.Second},
		{"a renewal between two changes", map[int]error{1: away, 9: lease(8, 10*time.Second)}, lease(8, 10*time.Second), 30, 3 * time.Second},
		{"a slow kubelet", nil, lease(0, 30*time.Second), 30, 30 * time.Second},
		{"the API server after kubelet", map[int]error{1: away, 20: lease(0, time.Second)}, away, 30, 15 * time.Second},
		{"the API server after a fault", map[int]error{1: away, 20: fault}, away, 30, 15 * time.Second},
		{"the API server alone", map[int]error{1: away}, away, 30, -5 * time.Second},
	} {
		var c contact
		for i := range test.now {
			if err, is := test.looks[i]; is {
				c.note(err, at(i))
			}
		}
		if left := c.left(test.last, at(0), at(test.now), 25*time.Second); left != test.left {
			t.Errorf("%s: %s left, want %s", test.name, left, test.left)
		}
	}
}

// TestRights: the Role of the namespace of nodes' Leases grants what the module asks for, and no more.
func TestRights(t *testing.T) {
	data, err := os.ReadFile("../../deploy/base/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var role rbacv1.Role
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind == "Role" && role.Name == "felixlike-node-leases" {
			found = true
			if !reflect.DeepEqual(role.Rules, Rights()) {
				t.Errorf("deployed are %v, wanted %v", role.Rules, Rights())
			}
		}
	}
	if !found {
		t.Error("there is no such Role")
	}
}
