package driver

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// tiered are policies of all namespaces with so many rules of 25 ports each: ClusterNetworkPolicies, and every second one of Antrea's API.
func tiered(t *testing.T, name string, number, rules int) datastore.Event {
	t.Helper()
	if number%2 == 1 {
		p := &antrea.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.Priority = float64(number + 1)
		p.Spec.AppliedTo = []antrea.AppliedTo{{NamespaceSelector: &metav1.LabelSelector{}}}
		var ports []string
		for i := range 25 {
			ports = append(ports, fmt.Sprintf(`{"protocol": "TCP", "port": %d}`, 2*i+1))
		}
		rule := fmt.Sprintf(`{"action": "Drop", "from": [{"namespaceSelector": {}}], "ports": [%s]}`, strings.Join(ports, ","))
		for range rules {
			var r antrea.Rule
			if err := json.Unmarshal([]byte(rule), &r); err != nil {
				t.Fatal(err)
			}
			p.Spec.Ingress = append(p.Spec.Ingress, r)
		}
		return datastore.AntreaSet{Object: p}
	}
	p := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Tier, p.Spec.Priority = v1alpha2.AdminTier, int32(number)
	p.Spec.Subject.Namespaces = &metav1.LabelSelector{}
	for range rules {
		r := v1alpha2.ClusterNetworkPolicyIngressRule{Action: v1alpha2.ClusterNetworkPolicyRuleActionDeny, From: []v1alpha2.ClusterNetworkPolicyIngressPeer{{Namespaces: &metav1.LabelSelector{}}}}
		for i := range 25 {
			r.Protocols = append(r.Protocols, v1alpha2.ClusterNetworkPolicyProtocol{TCP: &v1alpha2.ClusterNetworkPolicyProtocolTCP{DestinationPort: &v1alpha2.Port{Number: int32(2*i + 1)}}})
		}
		p.Spec.Ingress = append(p.Spec.Ingress, r)
	}
	return datastore.ClusterNetworkPolicySet{Policy: p}
}

// TestLargeTieredPoliciesTakeTurns: an apply has one large policy of the ordered tiers at most, a small change waits for one of them at most, and a changed policy
// keeps its former rules until its turn. New pods wait for all of them.
func TestLargeTieredPoliciesTakeTurns(t *testing.T) {
	const count, rules = 8, 400
	f, table := startSlow(t, &drivertest.LogBuffer{})
	f.Source.Send(true, datastore.NamespaceSet{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}})
	if err := programmed(t, f, podA); err != nil {
		t.Fatal(err)
	}
	large := func(programmed map[string]int, rules int) (n int) {
		for _, held := range programmed {
			if held == rules {
				n++
			}
		}
		return n
	}
	send := func(rules int) {
		var events []datastore.Event
		for i := range count {
			events = append(events, tiered(t, fmt.Sprint("large-", i), i, rules))
		}
		f.Source.Send(true, events...)
	}
	table.mu.Lock()
	table.applies = table.applies[:1]
	table.mu.Unlock()
	open := table.holdBack(t)
	send(rules)
	f.Source.Send(true, ruled("small", "b", 2, 1))
	eventually.True(t, "the waiting policies are named", func() bool {
		return len(f.Status().Problems) >= count-2 && strings.Contains(f.Status().Problems[0].Reason, "others are programmed before it")
	})
	attached := &model.Attachment{Pod: podA, Interface: "veth-a", Addresses: nil}
	if err := f.queue.ask(t.Context(), func() { attached = f.cluster.Model().Attachments[podA] }); err != nil {
		t.Fatal(err)
	}
	waiting, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := f.WaitPod(waiting, attached, ""); err == nil || !strings.Contains(err.Error(), "waits for its turn") {
		t.Errorf("a new pod: %v", err)
	}
	open()
	eventually.True(t, "all are in force", func() bool { return large(table.programmed(), rules) == count && len(f.Status().Problems) == 0 })
	if err := f.WaitPod(t.Context(), attached, ""); err != nil {
		t.Error(err)
	}
	wantSteps := func(rules int) {
		t.Helper()
		table.mu.Lock()
		defer table.mu.Unlock()
		before := 0
		for _, programmed := range table.applies {
			now := large(programmed, rules)
			if now > before+1 {
				t.Errorf("one apply has put %d large policies in force", now-before)
			}
			before = now
		}
	}
	wantSteps(rules)
	table.mu.Lock()
	for _, programmed := range table.applies {
		if programmed["networkpolicy/x/small"] == 2 {
			if n := large(programmed, rules); n > 2 {
				t.Errorf("the small policy was in force after %d large ones", n)
			}
			break
		}
	}
	table.applies = table.applies[len(table.applies)-1:]
	table.mu.Unlock()

	send(rules - 1)
	eventually.True(t, "all changes are in force", func() bool { return large(table.programmed(), rules-1) == count })
	wantSteps(rules - 1)
	table.mu.Lock()
	defer table.mu.Unlock()
	for _, programmed := range table.applies {
		if n := large(programmed, rules) + large(programmed, rules-1); n != count {
			t.Errorf("%d of %d policies had rules", n, count)
		}
	}
}

// TestCorrectedTieredPolicyDoesNotWait: if applies fail since a large policy came, its next version is tried at once, and the one after that. Others wait.
func TestCorrectedTieredPolicyDoesNotWait(t *testing.T) {
	f, table := startSlow(t, &drivertest.LogBuffer{})
	f.Source.Send(true, datastore.NamespaceSet{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}})
	asked := func(rules int) func() bool {
		return func() bool {
			table.mu.Lock()
			defer table.mu.Unlock()
			return slices.Contains(slices.Collect(maps.Values(table.asked)), rules)
		}
	}
	table.setSlow("*")
	f.Source.Send(true, tiered(t, "large", 0, 400))
	eventually.True(t, "the apply fails", func() bool { return asked(400)() && f.Status().LastApply.Error != "" })
	f.Source.Send(true, tiered(t, "other", 2, 300))
	for _, rules := range []int{399, 398} {
		f.Source.Send(true, tiered(t, "large", 0, rules))
		eventually.True(t, fmt.Sprintf("the version with %d rules is tried", rules), asked(rules))
	}
	if asked(300)() {
		t.Error("another large policy came between")
	}
	table.setSlow()
	eventually.True(t, "both are in force", func() bool { return asked(300)() && f.Status().LastApply.Error == "" && len(f.Status().Problems) == 0 })
}

// TestDeletedTieredPolicyHasNoTurn: a policy that is deleted, or made small, while it waits never comes.
func TestDeletedTieredPolicyHasNoTurn(t *testing.T) {
	f, table := startSlow(t, &drivertest.LogBuffer{})
	open := table.holdBack(t)
	f.Source.Send(true, datastore.NamespaceSet{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}}, tiered(t, "first", 0, 400), tiered(t, "gone", 2, 400), tiered(t, "other", 3, 400), tiered(t, "small", 4, 400))
	f.Source.Send(true, datastore.ClusterNetworkPolicyDeleted{Name: "gone"}, datastore.AntreaDeleted{ID: antrea.ID{Kind: antrea.KindClusterNetworkPolicy, Name: "other"}}, tiered(t, "small", 4, 3))
	open()
	eventually.True(t, "the first and the small one are in force", func() bool { return len(f.Status().Problems) == 0 && len(table.programmed()) == 2 })
	table.mu.Lock()
	defer table.mu.Unlock()
	for _, programmed := range table.applies {
		for name, held := range programmed {
			if strings.Contains(name, "gone") || strings.Contains(name, "other") || strings.Contains(name, "small") && held != 3 {
				t.Errorf("%s was in force, with %d rules", name, held)
			}
		}
	}
}

// holdBack has applies wait until open is called, or the test ends.
func (s *slowTable) holdBack(t *testing.T) (open func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gate := make(chan struct{})
	s.gate = gate
	open = sync.OnceFunc(func() {
		s.mu.Lock()
		s.gate = nil
		s.mu.Unlock()
		close(gate)
	})
	t.Cleanup(open)
	return open
}
