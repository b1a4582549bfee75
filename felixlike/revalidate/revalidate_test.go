package revalidate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/driver/moduletest"
	"github.com/felixlike/felixlike/felixlike/ends"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/test/eventually"
)

// fakeEstablished has connections with the mark of allowed ones.
type fakeEstablished struct {
	mu      sync.Mutex
	allowed []conntrack.Connection
	ended   int
	looks   int
	// onLook runs in each look, with its number, and returns the look's error.
	onLook func(look int) error
}

func (f *fakeEstablished) Through(context.Context, bool) ([]conntrack.Connection, error) {
	f.mu.Lock()
	f.looks++
	all, look := append([]conntrack.Connection(nil), f.allowed...), f.looks
	f.mu.Unlock()
	if f.onLook == nil {
		return all, nil
	}
	return all, f.onLook(look)
}

func (f *fakeEstablished) Disallow(_ context.Context, _ bool, all []conntrack.Connection) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range all {
		for i, o := range f.allowed {
			if o.Original == k.Original {
				f.allowed = append(f.allowed[:i:i], f.allowed[i+1:]...)
				f.ended++
				break
			}
		}
	}
	return len(all), nil
}

// put marks a connection, as a copy from the other enforcement point does.
func (f *fakeEstablished) put(k conntrack.Connection) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.allowed = append(f.allowed, k)
}

func (f *fakeEstablished) counts() (looks, ended int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks, f.ended
}

func (f *fakeEstablished) hasEnded(n int) func() bool {
	return func() bool { _, ended := f.counts(); return ended == n }
}

const (
	walkedPod = "10.10.0.2"
	walkPeer  = "10.10.1.2"
)

// toPod is a connection to the pod whose policies the tests change.
func toPod(port uint16) conntrack.Connection {
	o := conntrack.Tuple{Protocol: uint8(model.TCP), Src: netip.MustParseAddr(walkPeer), Dst: netip.MustParseAddr(walkedPod), SrcPort: port, DstPort: 80}
	return conntrack.Connection{Original: o, Reply: o.Reverse()}
}

// ingressPolicy is a policy of all pods that allows everything, or nothing.
func ingressPolicy(name string, allows bool) datastore.NetworkPolicySet {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name}}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if allows {
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
	}
	return datastore.NetworkPolicySet{Policy: p, Source: name + ".yaml"}
}

// walker is a driver that revalidates.
type walker struct {
	*moduletest.Fixture
	existing *Connections
}

// walking starts a driver that revalidates, with one pod and the events.
func walking(t *testing.T, e *fakeEstablished, events ...datastore.Event) *walker {
	t.Helper()
	v := &driver.View{}
	f := &walker{existing: NewConnections(v, e, nil, moduletest.Timing())}
	f.Fixture = moduletest.Start(t, driver.Config{}, v, f.existing.Module())
	f.Attach("a", walkedPod)
	f.Begin(t, append([]datastore.Event{drivertest.PodOn("a", "node1")}, events...)...)
	return f
}

func settledWalks(t *testing.T, f *walker) {
	t.Helper()
	eventually.True(t, "all changes are walked", func() bool {
		s := f.existing.status()
		return s.Pending == 0 && s.Running == nil && s.Last != nil && s.Last.Error == ""
	})
}

// TestWalkOfReplacedPolicy replaces a policy that allows a connection by another one that does, during a walk.
func TestWalkOfReplacedPolicy(t *testing.T) {
	e := &fakeEstablished{allowed: []conntrack.Connection{toPod(1), toPod(2)}}
	var f *walker
	ready := make(chan struct{})
	e.onLook = func(look int) error {
		<-ready
		if look == 1 {
			f.Source.Send(true, datastore.NetworkPolicyDeleted{Namespace: "x", Name: "a"}, ingressPolicy("b", true))
		}
		return nil
	}
	f = walking(t, e, ingressPolicy("a", true))
	close(ready)
	eventually.True(t, "a walk after the change", func() bool { looks, _ := e.counts(); return looks > 1 })
	settledWalks(t, f)
	if _, ended := e.counts(); ended != 0 {
		t.Errorf("%d allowed connections are ended", ended)
	}
	f.Source.Send(true, ingressPolicy("b", false))
	eventually.True(t, "the end of denied connections", e.hasEnded(2))
}

// TestWalkOfReusedAddress: attachments that are left over from pods that are gone hide no pod.
func TestWalkOfReusedAddress(t *testing.T) {
	e := &fakeEstablished{allowed: []conntrack.Connection{toPod(1)}}
	f := walking(t, e, ingressPolicy("a", true))
	for n := range 15 {
		f.Attach(fmt.Sprintf("gone%d", n), walkedPod)
	}
	settledWalks(t, f)
	f.Source.Send(true, ingressPolicy("a", false))
	eventually.True(t, "the end of the denied connection", e.hasEnded(1))
}

// TestWalkAfterCarry: a copy of connections brings marks back, and the walk after it takes them again.
func TestWalkAfterCarry(t *testing.T) {
	e := &fakeEstablished{allowed: []conntrack.Connection{toPod(1)}}
	f := walking(t, e, ingressPolicy("a", false))
	eventually.True(t, "the end of the denied connection", e.hasEnded(1))
	settledWalks(t, f)
	e.put(toPod(1))
	f.existing.Carried()
	eventually.True(t, "the end of the copied connection", e.hasEnded(2))
}

// TestWalkThatPanics: its changes wait for the next walk.
func TestWalkThatPanics(t *testing.T) {
	e := &fakeEstablished{allowed: []conntrack.Connection{toPod(1)}, onLook: func(look int) error {
		if look == 1 {
			panic("a walk")
		}
		return nil
	}}
	walking(t, e, ingressPolicy("a", false))
	eventually.True(t, "the end of the denied connection", e.hasEnded(1))
}

// TestWalkOfPartOfTheConnections: an entry that cannot be read keeps no other one from its end.
func TestWalkOfPartOfTheConnections(t *testing.T) {
	e := &fakeEstablished{allowed: []conntrack.Connection{toPod(1)}, onLook: func(int) error { return errors.New("one line") }}
	f := walking(t, e, ingressPolicy("a", false))
	eventually.True(t, "the end of the denied connection", e.hasEnded(1))
	eventually.True(t, "the error in status", func() bool {
		s := f.existing.status()
		return s.Mode == config.Revalidate && s.Last != nil && strings.Contains(s.Last.Error, "one line")
	})
}

// resting are connections that a test feeds, with one pod that policies apply to.
type resting struct {
	*Connections
	site     *site
	revision uint64
}

func newResting(applied model.Applied) *resting {
	r := &resting{Connections: NewConnections(nil, &fakeEstablished{}, nil, driver.Timing{})}
	r.site = &site{Site: &ends.Site{Pods: map[netip.Addr]model.PodID{netip.MustParseAddr(walkedPod): {Namespace: "x", Name: "a"}}}}
	r.update(applying(applied))
	return r
}

func (r *resting) update(all ...model.Update) {
	for _, u := range all {
		r.revision++
		r.onUpdate(u, r.revision)
	}
}

func (r *resting) denies() bool {
	return len(r.denied(r.site, []conntrack.Connection{toPod(1)})) == 1
}

func applying(a model.Applied) model.Update {
	return model.EndpointUpdate{Endpoint: &model.Endpoint{ID: model.PodID{Namespace: "x", Name: "a"}, Ingress: a}}
}

func policyOf(name string, rules ...model.Rule) *model.Policy {
	return &model.Policy{ID: model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: name}, Ingress: rules}
}

// TestWalkSeesWholeFlushes: between two updates of a flush, a pod may have no policy that allows.
func TestWalkSeesWholeFlushes(t *testing.T) {
	allow := model.Rule{AnyPeer: true, AnyPort: true, Action: model.Allow}
	a, b := policyOf("a", allow), policyOf("b", allow)
	r := newResting(model.Applied{NetworkPolicies: []model.PolicyID{a.ID}})
	r.update(model.PolicyUpdate{Policy: a})
	r.flushed(nil, r.revision)
	for _, u := range []model.Update{
		model.PolicyRemove{ID: a.ID}, applying(model.Applied{NetworkPolicies: []model.PolicyID{b.ID}}), model.PolicyUpdate{Policy: b},
	} {
		if r.update(u); r.denies() {
			t.Errorf("denied after %T", u)
		}
	}
	if r.flushed(nil, r.revision); r.denies() {
		t.Error("denied after the flush")
	}
}

// TestWalkOfPartialPolicies: a policy without its rules as written ends no connections, but other tiers do.
func TestWalkOfPartialPolicies(t *testing.T) {
	empty := policyOf("a")
	applied := model.Applied{NetworkPolicies: []model.PolicyID{empty.ID}}
	r := newResting(applied)
	r.update(model.PolicyUpdate{Policy: empty})
	r.flushed(map[model.PolicyID]bool{empty.ID: true}, r.revision)
	if r.denies() {
		t.Error("denied by a policy whose rules wait")
	}
	admin := &model.Policy{ID: model.PolicyID{Tier: model.TierAdmin, Name: "no"}, Ingress: []model.Rule{{AnyPeer: true, AnyPort: true, Action: model.Deny}}}
	applied.Admin = []model.PolicyID{admin.ID}
	r.update(model.PolicyUpdate{Policy: admin}, applying(applied))
	if r.flushed(map[model.PolicyID]bool{empty.ID: true}, r.revision); !r.denies() {
		t.Error("an admin rule does not deny")
	}
	applied.Admin = nil
	r.update(applying(applied))
	r.flushed(map[model.PolicyID]bool{empty.ID: true}, r.revision)
	r.site.programmed = r.revision
	if _, affected := r.due(r.site); len(affected) != 1 {
		t.Errorf("affected %v", affected)
	}
	// The policy's rules are those that it had.
	if r.flushed(nil, r.revision); !r.denies() {
		t.Error("not denied by a policy with all its rules")
	}
	if _, affected := r.due(r.site); len(affected) != 1 {
		t.Errorf("no walk after the policy's turn: %v", affected)
	}
}

// TestWalkOfMessages: a rule about a type of ICMP ends the connections that a message of the type has begun.
func TestWalkOfMessages(t *testing.T) {
	timestamps := model.Rule{AnyPeer: true, Action: model.Deny, Ports: []model.PortRange{{Protocol: model.ICMP, First: model.ICMPMessage(13, 0), Last: model.ICMPMessage(13, 255)}}}
	admin := &model.Policy{ID: model.PolicyID{Tier: model.TierAdmin, Name: "no"}, Ingress: []model.Rule{timestamps}}
	r := newResting(model.Applied{Admin: []model.PolicyID{admin.ID}})
	r.update(model.PolicyUpdate{Policy: admin})
	r.flushed(nil, r.revision)
	for kind, denied := range map[uint8]bool{8: false, 13: true} {
		k := toPod(1)
		k.Original.Protocol, k.Original.SrcPort, k.Original.DstPort = uint8(model.ICMP), 0, 0
		k.Original.ICMPType, k.Original.ICMPID = kind, 1
		k.Reply = k.Original.Reverse()
		if got := len(r.denied(r.site, []conntrack.Connection{k})) == 1; got != denied {
			t.Errorf("type %d: denied %t, want %t", kind, got, denied)
		}
	}
}

// TestWalkLetsTheLoopGoOn: by a large policy, connections are judged a few at a time.
func TestWalkLetsTheLoopGoOn(t *testing.T) {
	rules := make([]model.Rule, 100000)
	for i := range rules {
		rules[i] = model.Rule{Peers: []model.GroupID{"none"}, AnyPort: true, Action: model.Allow}
	}
	large := policyOf("a", rules...)
	r := newResting(model.Applied{NetworkPolicies: []model.PolicyID{large.ID}})
	r.update(model.PolicyUpdate{Policy: large})
	r.flushed(nil, r.revision)
	all := make([]conntrack.Connection, 100)
	for i := range all {
		all[i] = toPod(uint16(i))
	}
	var denied []conntrack.Connection
	began := time.Now()
	n := r.judgeSome(r.site, all, &denied)
	if n == len(all) || n == 0 || len(denied) != n {
		t.Errorf("judged %d of %d in %s, %d denied", n, len(all), time.Since(began), len(denied))
	}
	if got := len(r.denied(r.site, all)); got != len(all) {
		t.Errorf("%d of %d denied", got, len(all))
	}
}
