package property

import (
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/test/stopwatch"
)

// TestPoisonedNodeRecovers: while an agent runs, the set of a tenant's ipBlocks has 120,000
// elements, as an earlier version would have written them. Then the tenant deletes the
// policy. The set is gone within a minute, and all is programmed. Meanwhile another tenant
// makes small changes. With -v it prints their waits.
func TestPoisonedNodeRecovers(t *testing.T) {
	a := hostileAgent(t, config.NFTables)
	evil := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "evil", Name: "evil"}}
	evil.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{
		// A single prefix has no set.
		{IPBlock: &networkingv1.IPBlock{CIDR: "12.0.0.0/32"}}, {IPBlock: &networkingv1.IPBlock{CIDR: "12.0.0.2/32"}},
	}}}
	before := setsOf(t)
	a.send(datastore.NetworkPolicySet{Policy: evil})
	a.programmed(t, evilPod())
	poisoned := ""
	for name := range setsOf(t) {
		if !before[name] && strings.HasSuffix(name, "-4") {
			poisoned = name
		}
	}
	if poisoned == "" {
		t.Fatalf("no set for the policy's addresses: %v", setsOf(t))
	}
	var elements []string
	for i, address := 0, netip.MustParseAddr("13.0.0.0"); i < 120_000; i, address = i+1, address.Next().Next() {
		elements = append(elements, address.String())
	}
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(fmt.Sprintf("add element inet felixlike %s { %s }\n", poisoned, strings.Join(elements, ", ")))
	if out, err := nft.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	began := time.Now()
	a.send(datastore.NetworkPolicyDeleted{Namespace: "evil", Name: "evil"})
	longest, recovered := time.Duration(0), time.Duration(0)
	for i := 0; recovered == 0 || i < 10; i++ {
		good := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "good", Name: fmt.Sprint("good-", i)}}
		good.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
		watch := stopwatch.Start(t)
		a.send(datastore.NetworkPolicySet{Policy: good})
		a.programmed(t, goodPod())
		longest = max(longest, watch.Lap(t).Net())
		if recovered == 0 && !setsOf(t)[poisoned] {
			recovered = time.Since(began)
		}
		if recovered == 0 && time.Since(began) > time.Minute {
			t.Fatalf("the set %s is still there after a minute", poisoned)
		}
	}
	a.programmed(t, evilPod())
	if s := a.Status(); s.LastApply.Error != "" || len(s.Quarantined) > 0 {
		t.Errorf("in the end: %q, quarantined %v", s.LastApply.Error, s.Quarantined)
	}
	t.Logf("recovered after %d ms; a change of another tenant has waited for %d ms at most while there was a processor", recovered.Milliseconds(), longest.Milliseconds())
	if limit := 2 * time.Second; longest > limit {
		t.Errorf("a change of another tenant has waited for %s, want at most %s", longest, limit)
	}
}

var setName = regexp.MustCompile(`(?m)^\s+set (\S+) \{`)

// setsOf returns the names of the agent's nftables sets.
func setsOf(t *testing.T) map[string]bool {
	t.Helper()
	out, err := exec.Command("nft", "--terse", "list", "table", "inet", "felixlike").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	names := map[string]bool{}
	for _, match := range setName.FindAllStringSubmatch(string(out), -1) {
		names[match[1]] = true
	}
	return names
}
