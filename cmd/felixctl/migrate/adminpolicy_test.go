package migrate

import (
	"fmt"
	"strings"
	"testing"
)

// TestManyPeersAndPorts: a rule with more peers and ports than a ClusterNetworkPolicy allows becomes several, which together
// are the same, and a policy that would have too many rules is refused.
func TestManyPeersAndPorts(t *testing.T) {
	rule := func(peers, ports int) string {
		var text strings.Builder
		text.WriteString("  - {action: Deny, to: [")
		for i := range peers {
			fmt.Fprintf(&text, "{networks: [203.0.113.%d/32]},", i)
		}
		text.WriteString("], ports: [")
		for i := range ports {
			fmt.Fprintf(&text, "{portNumber: {port: %d}},", i+1)
		}
		return text.String() + "]}\n"
	}
	for _, test := range []struct {
		rules, want string
	}{
		{rule(25, 25), "1 rules, lost 0"},
		{rule(26, 25), "2 rules, lost 0"},
		{rule(60, 30) + rule(1, 1), "7 rules, lost 0"},
		{rule(100, 100), "16 rules, lost 0"},
		{rule(100, 100) + rule(100, 51), "0 rules, lost 1"},
	} {
		documents, err := parse([]byte("apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: a}\n" +
			"spec:\n  priority: 1\n  subject: {namespaces: {}}\n  egress:\n" + test.rules))
		if err != nil {
			t.Fatal(err)
		}
		result, err := convert(documents, Options{})
		if err != nil {
			t.Fatal(err)
		}
		output, err := result.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%d rules, lost %d", strings.Count(string(output), "action: Deny"), len(result.Objects[0].Losses)); got != test.want {
			t.Errorf("%d characters of rules: %s, want %s", len(test.rules), got, test.want)
		}
		if len(result.Objects[0].Losses) > 0 {
			continue
		}
		var probes strings.Builder
		for _, name := range []string{"outside", "partner"} { // 203.0.113.5 is a peer if there are more than five
			fmt.Fprintf(&probes, "shop/web %s tcp/25 %s\n", name, map[bool]string{true: "denied", false: "allowed"}[name == "outside"])
		}
		judge(t, output, probes.String())
	}
}
