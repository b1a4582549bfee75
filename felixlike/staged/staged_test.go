package staged

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

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/driver/moduletest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/test/eventually"
)

// tracked are the connections of a node.
type tracked struct {
	mu  sync.Mutex
	all []conntrack.Connection
	err error
}

func (f *tracked) Begun(context.Context, bool) ([]conntrack.Connection, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]conntrack.Connection(nil), f.all...), f.err
}

func (f *tracked) set(err error, all ...conntrack.Connection) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all, f.err = all, err
}

const podAddress = "10.10.0.2"

// from is a connection to the pod.
func from(peer string, port uint16) conntrack.Connection {
	o := conntrack.Tuple{Protocol: uint8(model.TCP), Src: netip.MustParseAddr(peer), Dst: netip.MustParseAddr(podAddress), SrcPort: port, DstPort: 80}
	return conntrack.Connection{Original: o, Reply: o.Reverse()}
}

// policy allows connections to all pods from one block of addresses; enforce is the annotation.
func policy(name, enforce, block string) datastore.NetworkPolicySet {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: name}}
	if enforce != "" {
		p.Annotations = map[string]string{model.EnforceAnnotation: enforce}
	}
	p.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
	if block != "" {
		p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: block}}}}}
	}
	return datastore.NetworkPolicySet{Policy: p, Source: name + ".yaml"}
}

// fixture is a driver with one pod, whose status the test reads.
type fixture struct {
	*moduletest.Fixture
	t *testing.T
}

func start(t *testing.T, c *tracked, events ...datastore.Event) fixture {
	t.Helper()
	v := &driver.View{}
	f := fixture{moduletest.Start(t, driver.Config{}, v, New(v, c, nil, time.Millisecond).Module()), t}
	f.Attach("a", podAddress)
	f.Begin(t, append([]datastore.Event{drivertest.PodOn("a", "node1")}, events...)...)
	return f
}

// counts are judged and denied by policy.
func (f fixture) counts() string {
	f.t.Helper()
	s := f.Status().Staged
	if s == nil {
		return "none"
	}
	var all []string
	for _, p := range s.Policies {
		all = append(all, fmt.Sprintf("%s %d/%d", p.Policy, p.Denied, p.Evaluated))
	}
	return strings.Join(all, ", ")
}

// become waits until the counts are so, and stay so for two looks.
func (f fixture) become(want string) {
	f.t.Helper()
	eventually.True(f.t, want, func() bool { return f.counts() == want })
	f.looked()
	if got := f.counts(); got != want {
		f.t.Errorf("after another look: %s, want %s", got, want)
	}
}

// looked waits for a look that begins now.
func (f fixture) looked() {
	f.t.Helper()
	now := time.Now()
	eventually.True(f.t, "a look", func() bool {
		s := f.Status().Staged
		return s != nil && s.Last != nil && s.Last.At.After(now)
	})
}

func TestNewConnectionsAreJudged(t *testing.T) {
	c := &tracked{}
	c.set(nil, from("10.10.1.2", 1))
	f := start(t, c, policy("in", "no", "10.10.1.0/24"))
	f.looked()
	f.become("networkpolicy/x/in 0/0") // the connection is older
	if s := f.Status(); len(s.Policies) != 0 {
		t.Errorf("enforced: %v", s.Policies)
	}
	c.set(nil, from("10.10.1.2", 1), from("10.10.1.2", 2), from("10.10.2.2", 3))
	f.become("networkpolicy/x/in 1/2")
	c.set(nil) // they end
	f.looked()
	c.set(nil, from("10.10.2.2", 3)) // the same addresses and ports again
	f.become("networkpolicy/x/in 2/3")
	pod := f.Status().Staged.Policies[0].Pods[0]
	if flows := f.Status().Staged.Policies[0].Flows; len(flows) != 1 || flows[0].Connections != 2 || flows[0].Pod != "x/a" || flows[0].Source.String() != "10.10.2.2" || !flows[0].Last.After(flows[0].At) {
		t.Errorf("flows: %+v", flows)
	}
	if pod.Pod != "x/a" || pod.First.Source.String() != "10.10.2.2" || pod.First.Port != 80 || pod.First.Direction != "ingress" || pod.First.At.After(pod.Last.At) {
		t.Errorf("pod: %+v", pod)
	}
	f.Source.Send(true, policy("in", "no", "10.10.2.0/24")) // another policy, with counts of its own
	f.become("networkpolicy/x/in 0/0")
	c.set(nil, from("10.10.2.2", 4), from("10.10.1.2", 5))
	f.become("networkpolicy/x/in 1/2")
	f.Source.Send(true, policy("in", "yes", "10.10.1.0/24"))
	eventually.True(t, "none staged", func() bool { return f.counts() == "none" })
	if s := f.Status(); len(s.Policies) != 1 {
		t.Errorf("not enforced: %v", s.Policies)
	}
}

func TestStagedPoliciesTogether(t *testing.T) {
	c := &tracked{}
	f := start(t, c, policy("one", "no", "10.10.1.0/24"), policy("two", "no", "10.10.2.0/24"))
	f.looked()
	c.set(nil, from("10.10.1.2", 1), from("10.10.2.2", 2), from("10.10.3.2", 3))
	f.become("networkpolicy/x/one 1/3, networkpolicy/x/two 1/3")
	// One of them is enforced: what it denies is not counted for the other one.
	f.Source.Send(true, policy("one", "", "10.10.1.0/24"))
	f.become("networkpolicy/x/two 1/3")
	c.set(nil, from("10.10.3.2", 4))
	f.become("networkpolicy/x/two 1/4")
	f.Source.Send(true, policy("one", "no", "10.10.1.0/24"))
	eventually.True(t, "staged again", func() bool { return f.counts() == "networkpolicy/x/one 0/0, networkpolicy/x/two 1/4" })
	f.looked()
	c.set(nil, from("10.10.1.3", 5), from("10.10.3.2", 6))
	f.become("networkpolicy/x/one 1/2, networkpolicy/x/two 2/6")
}

func TestUnreadEntriesAreNotNewLater(t *testing.T) {
	c := &tracked{}
	f := start(t, c, policy("in", "no", ""))
	f.looked()
	c.set(nil, from("10.10.1.2", 1))
	f.become("networkpolicy/x/in 1/1")
	c.set(errors.New("one line"))
	eventually.True(t, "the error", func() bool { s := f.Status().Staged; return s.Last != nil && s.Last.Error == "one line" })
	c.set(nil, from("10.10.1.2", 1))
	f.become("networkpolicy/x/in 1/1")
}

// TestFailedFirstLook: connections that were there before the policy and could not be read are not new.
func TestFailedFirstLook(t *testing.T) {
	c := &tracked{}
	c.set(errors.New("the switch starts"))
	f := start(t, c, policy("in", "no", ""))
	eventually.True(t, "the error", func() bool { s := f.Status().Staged; return s != nil && s.Last != nil && s.Last.Error != "" })
	c.set(nil, from("10.10.1.2", 1), from("10.10.1.2", 2))
	f.looked()
	f.become("networkpolicy/x/in 0/0")
	c.set(nil, from("10.10.1.2", 3))
	f.become("networkpolicy/x/in 1/1")
}

// TestReplacedPod: the counts outlive the only pod that the policy selects.
func TestReplacedPod(t *testing.T) {
	c := &tracked{}
	f := start(t, c, policy("in", "no", ""))
	f.looked()
	c.set(nil, from("10.10.1.2", 1))
	f.become("networkpolicy/x/in 1/1")
	f.Source.Send(true, datastore.PodDeleted{ID: model.PodID{Namespace: "x", Name: "a"}})
	eventually.True(t, "no policy", func() bool { return f.counts() == "none" })
	f.Source.Send(true, drivertest.PodOn("a", "node1"))
	f.become("networkpolicy/x/in 1/1")
	c.set(nil, from("10.10.1.2", 1), from("10.10.1.2", 2))
	f.become("networkpolicy/x/in 2/2")
}

// TestBothEnds: a connection between two pods of the node counts once for a policy of both.
func TestBothEnds(t *testing.T) {
	c := &tracked{}
	both := policy("both", "no", "")
	both.Policy.Spec.PolicyTypes = append(both.Policy.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
	f := start(t, c, both, drivertest.PodOn("b", "node1"))
	f.Attach("b", "10.10.0.3")
	f.looked()
	c.set(nil, from("10.10.0.3", 1))
	f.become("networkpolicy/x/both 1/1")
}

// TestNewestFlowsAreKept: of more flows than there is room for, those stay that had a connection last. All are counted.
func TestNewestFlowsAreKept(t *testing.T) {
	c := &tracked{}
	f := start(t, c, policy("in", "no", ""))
	f.looked()
	var all []conntrack.Connection
	for i := range maxFlows {
		all = append(all, from(fmt.Sprintf("10.10.1.%d", i+1), 1))
	}
	c.set(nil, all...)
	f.become(fmt.Sprintf("networkpolicy/x/in %d/%d", maxFlows, maxFlows))
	c.set(nil, append(all, from("10.10.1.1", 2))...)
	f.become(fmt.Sprintf("networkpolicy/x/in %d/%d", maxFlows+1, maxFlows+1))
	c.set(nil, append(all, from("10.10.1.1", 2), from("10.10.2.1", 1), from("10.10.2.2", 1))...)
	f.become(fmt.Sprintf("networkpolicy/x/in %d/%d", maxFlows+3, maxFlows+3))
	flows := f.Status().Staged.Policies[0].Flows
	kept := map[string]uint64{}
	for _, f := range flows {
		kept[f.Source.String()] = f.Connections
	}
	if len(flows) != maxFlows || kept["10.10.1.1"] != 2 || kept["10.10.1.2"] != 0 || kept["10.10.1.3"] != 0 || kept["10.10.1.4"] != 1 || kept["10.10.2.2"] != 1 {
		t.Errorf("%d flows: %v", len(flows), kept)
	}
}

func TestUnknownValueIsEnforced(t *testing.T) {
	f := start(t, &tracked{}, policy("in", "false", ""))
	if s := f.Status(); len(s.Policies) != 1 || len(s.Problems) != 1 || !strings.Contains(s.Problems[0].Reason, "must be yes or no") || s.Staged != nil {
		t.Errorf("policies %v, problems %v, staged %v", s.Policies, s.Problems, s.Staged)
	}
}
