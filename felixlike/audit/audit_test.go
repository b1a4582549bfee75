package audit

import (
	"context"
	"net"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/driver/moduletest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
	"github.com/felixlike/felixlike/test/eventually"
)

// fakeSwitch answers questions about packets between the pods a (port 3), b (4) and c (5) as a switch with the policy
// of auditPods, or otherwise.
type fakeSwitch struct {
	mu sync.Mutex
	// lost and leaking make it drop allowed packets and deliver denied ones.
	lost, leaking bool
	// steers makes it lead packets of pods to port 2, the host.
	steers bool
	// during runs during each question.
	during func()
	// passed and denied count the packets by policy.
	asked, allowed, denied int
}

func (f *fakeSwitch) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeSwitch) Trace(_ context.Context, p vswitchd.TracedPacket) (vswitchd.Traced, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.during != nil {
		f.during()
	}
	if f.steers && p.InPort != 2 {
		return vswitchd.Traced{Ports: []uint32{2}}, nil
	}
	out := map[string]uint32{"10.10.0.3": 3, "10.10.0.4": 4, "10.10.0.5": 5}[p.Destination.String()]
	// Only c reaches a, and only TCP port 80.
	through := f.steers || out != 3 || p.Source.String() == "10.10.0.5" && p.Protocol == model.TCP && p.Port == 80
	if through {
		f.allowed++
	} else {
		f.denied++
	}
	if through && !f.lost || !through && f.leaking {
		return vswitchd.Traced{Ports: []uint32{out}, Last: "110. ip"}, nil
	}
	return vswitchd.Traced{Last: "100. ip, priority 200"}, nil
}

// audited runs a driver that audits the switch, with the pods a, b and c.
func audited(t *testing.T, sw *fakeSwitch, place backend.Place, table *drivertest.Table, log *drivertest.LogBuffer) *moduletest.Fixture {
	t.Helper()
	cfg := driver.Config{Stages: []backend.Stage{table.WatchedStage()}, Backend: &drivertest.Backend{NameIs: "fake", PlaceIs: place}}
	if log != nil {
		cfg.Log = log.Logger()
	}
	v := &driver.View{}
	a := New(v, Options{Trace: sw.Trace, Gateway: Gateway{Port: 2, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}}, Every: 5 * time.Millisecond})
	f := moduletest.Start(t, cfg, v, a.Module())
	var pods []datastore.Event
	for i, name := range []string{"a", "b", "c"} {
		at := byte(3 + i)
		f.Updates <- func(update func(model.Update), _ func()) {
			update(model.AttachmentUpdate{Attachment: &model.Attachment{
				Pod: model.PodID{Namespace: "x", Name: name}, Interface: "veth-" + name, OFPort: uint32(at),
				MAC: net.HardwareAddr{2, 0, 0, 0, 0, at}, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 10, 0, at})},
			}})
		}
		pods = append(pods, datastore.PodSet{Pod: &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name, Labels: map[string]string{"app": name}}, Spec: corev1.PodSpec{NodeName: "node1"},
		}})
	}
	port := intstr.FromInt32(80)
	onlyC := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "only-c"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "c"}}}},
			Ports: []networkingv1.NetworkPolicyPort{{Port: &port}},
		}},
	}}
	f.Begin(t, append(pods, datastore.NetworkPolicySet{Policy: onlyC})...)
	return f
}

// asks waits until the switch was asked so often.
func (f *fakeSwitch) asks(t *testing.T, times int) {
	t.Helper()
	eventually.True(t, "questions of the audit", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.asked >= times
	})
}

// A switch that does as the model says is asked about allowed and denied packets, and the agent stays ready.
func TestAuditAgrees(t *testing.T) {
	for name, place := range map[string]backend.Place{"in the switch": backend.InSwitch, "in the kernel": backend.InKernel} {
		t.Run(name, func(t *testing.T) {
			sw := &fakeSwitch{steers: place == backend.InKernel}
			f := audited(t, sw, place, drivertest.NewTable(t), nil)
			sw.asks(t, 40)
			if got := f.Missing(t); got != "" {
				t.Errorf("not ready: %s", got)
			}
			sw.mu.Lock()
			defer sw.mu.Unlock()
			if sw.allowed == 0 || place == backend.InSwitch && sw.denied == 0 {
				t.Errorf("asked about %d allowed and %d denied packets", sw.allowed, sw.denied)
			}
		})
	}
}

// A switch that drops an allowed packet, or delivers a denied one, makes the agent not ready, with one line in the
// log and one full read, until the answers agree.
func TestAuditNamesDifferences(t *testing.T) {
	for name, test := range map[string]struct {
		place  backend.Place
		change func(*fakeSwitch, bool)
		want   string
	}{
		"allowed":    {backend.InSwitch, func(f *fakeSwitch, on bool) { f.lost = on }, "policy allows it, and the switch drops it; last flow 100. ip, priority 200"},
		"denied":     {backend.InSwitch, func(f *fakeSwitch, on bool) { f.leaking = on }, "to pod x/a (10.10.0.3), port 80: policy denies it, and the switch delivers it; last flow 110. ip"},
		"not led":    {backend.InKernel, func(f *fakeSwitch, on bool) { f.steers = !on }, "the switch does not lead it to the host"},
		"not to pod": {backend.InKernel, func(f *fakeSwitch, on bool) { f.lost = on }, "the switch does not deliver it to the pod when it comes from the host"},
	} {
		t.Run(name, func(t *testing.T) {
			sw, table, log := &fakeSwitch{steers: test.place == backend.InKernel}, drivertest.NewTable(t), &drivertest.LogBuffer{}
			f := audited(t, sw, test.place, table, log)
			sw.asks(t, 4)
			sw.set(func() { test.change(sw, true) })
			eventually.True(t, "the difference is named", func() bool { return strings.Contains(f.Missing(t), test.want) })
			eventually.True(t, "everything is read again", func() bool {
				table.Mu.Lock()
				defer table.Mu.Unlock()
				return table.Invalidated == 1
			})
			notices, err := f.Notices(t.Context())
			if err != nil || len(notices) != 1 || notices[0].Kind != noticeDatapathDiffers {
				t.Errorf("notices %+v, %v", notices, err)
			}
			if all := f.Status().Problems; len(all) != 1 || !strings.Contains(all[0].Reason, test.want) {
				t.Errorf("problems %+v", all)
			}
			sw.mu.Lock()
			asked := sw.asked
			sw.mu.Unlock()
			sw.asks(t, asked+6)
			recorder := httptest.NewRecorder()
			f.Metrics().ServeHTTP(recorder, httptest.NewRequest("GET", "/metrics", nil))
			if text := recorder.Body.String(); strings.Contains(text, `felixlike_audit_questions_total{result="differs"} 0`) || !strings.Contains(text, "felixlike_ready 0") {
				t.Error("the metrics do not show the difference")
			}
			sw.set(func() { test.change(sw, false) })
			eventually.True(t, "the agent is ready", func() bool { return f.Missing(t) == "" })
			if n := len(log.Lines("the datapath differs")); n != 1 {
				t.Errorf("%d lines about the difference", n)
			}
			if n := len(log.Lines("agrees with the model again")); n != 1 {
				t.Errorf("%d lines about its end", n)
			}
		})
	}
}

// The audit reports no answer that a change may have altered: no answer during an apply, and no difference that it
// sees only once.
func TestAuditOfChangesInFlight(t *testing.T) {
	sw, log := &fakeSwitch{lost: true}, &drivertest.LogBuffer{}
	var f atomic.Pointer[moduletest.Fixture]
	sw.during = func() {
		if f := f.Load(); f != nil {
			f.Source.Send(true, drivertest.PodOn("other", "node2"))
		}
	}
	fixture := audited(t, sw, backend.InSwitch, drivertest.NewTable(t), log)
	f.Store(fixture)
	sw.asks(t, 20)
	once := 0
	sw.set(func() {
		sw.during = func() { once++; sw.lost = once%2 == 0 }
	})
	sw.asks(t, 60)
	if lines := log.Lines("the datapath differs"); len(lines) > 0 {
		t.Errorf("a change in flight is reported: %v", lines)
	}
}

// While a stage runs, nothing is asked: its apply does not wait for the audit, nor the audit for it.
func TestAuditWaitsForStages(t *testing.T) {
	sw, table := &fakeSwitch{}, drivertest.NewTable(t)
	f := audited(t, sw, backend.InSwitch, table, nil)
	sw.asks(t, 3)
	hold, held := make(chan struct{}), make(chan struct{}, 1)
	table.Set(func() {
		table.OnApply = func() {
			select {
			case held <- struct{}{}:
			default:
			}
			<-hold
		}
	})
	f.Source.Send(true, drivertest.PodOn("new", "node1"))
	<-held
	time.Sleep(20 * time.Millisecond) // a question that had begun ends
	sw.mu.Lock()
	before := sw.asked
	sw.mu.Unlock()
	time.Sleep(100 * time.Millisecond)
	sw.mu.Lock()
	after := sw.asked
	sw.mu.Unlock()
	close(hold)
	if after > before+1 { // that question may have come to its end late
		t.Errorf("%d questions while a stage ran", after-before)
	}
	sw.asks(t, after+3)
}

// A pod that is closed, or has lost its interface, is not asked about.
func TestAuditLeavesOutClosedPods(t *testing.T) {
	sw := &fakeSwitch{lost: true}
	v := &driver.View{}
	a := New(v, Options{
		Trace: sw.Trace, Every: time.Millisecond,
		LostInterfaces: func() []model.Attachment { return []model.Attachment{{Pod: model.PodID{Namespace: "x", Name: "b"}}} },
	})
	f := moduletest.Start(t, driver.Config{Backend: &drivertest.Backend{NameIs: "fake", PlaceIs: backend.InSwitch}}, v, a.Module())
	f.Begin(t, drivertest.PodOn("a", "node1"), drivertest.PodOn("b", "node1"))
	for i, name := range []string{"a", "b", "stranger"} {
		f.Updates <- func(update func(model.Update), _ func()) {
			update(model.AttachmentUpdate{Attachment: &model.Attachment{
				Pod: model.PodID{Namespace: "x", Name: name}, Interface: "veth-" + name, OFPort: uint32(3 + i),
				Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 10, 0, byte(3 + i)})},
			}})
		}
	}
	time.Sleep(100 * time.Millisecond) // time for questions that must not come
	sw.mu.Lock()
	defer sw.mu.Unlock()
	if sw.asked > 0 {
		t.Errorf("%d questions", sw.asked)
	}
}
