package migrate

import (
	"fmt"
	"strings"
	"testing"
)

// TestEntityAll: the entities of a rule are alternatives, so all beside another entity is all alone: in either order,
// in both directions, in rules that allow and that deny, in both kinds of object.
func TestEntityAll(t *testing.T) {
	for _, kind := range []string{"CiliumNetworkPolicy, metadata: {name: a, namespace: shop}", "CiliumClusterwideNetworkPolicy, metadata: {name: a}"} {
		for _, rules := range []string{"egress: [{toEntities: [%s]}]", "egressDeny: [{toEntities: [%s]}]", "ingress: [{fromEntities: [%s]}]", "ingressDeny: [{fromEntities: [%s]}]"} {
			of := func(entities string) string {
				text := fmt.Sprintf("{apiVersion: cilium.io/v2, kind: "+kind+", spec: {endpointSelector: {}, "+rules+"}}", entities)
				out, problems, _ := run(text, "convert", "--cluster-cidr", "10.0.0.0/8,fd00::/8", "-f", "-")
				return out + problems
			}
			want := of("all")
			for _, other := range []string{"world", "world-ipv4", "world-ipv6", "cluster", "remote-node", "host"} {
				for _, entities := range []string{"all, " + other, other + ", all"} {
					if got := of(entities); got != want {
						t.Errorf("%s: %s: [%s] differs from [all]:\n%s\nwant:\n%s", strings.Fields(kind)[0], rules, entities, got, want)
					}
				}
			}
		}
	}
}

// TestWrongPrefix: the problem says which prefix of the author is none.
func TestWrongPrefix(t *testing.T) {
	const text = "{apiVersion: cilium.io/v2, kind: CiliumNetworkPolicy, metadata: {name: a, namespace: shop}, spec: {endpointSelector: {}, egress: [{toCIDRSet: [{cidr: 192.0.2.0/24}, {cidr: office/24}]}]}}"
	_, problems, _ := run(text, "convert", "--cluster-cidr", "10.0.0.0/8", "-f", "-")
	if want := `spec.egress[0]: toCIDRSet[1]: "office/24" is not a CIDR`; !strings.Contains(strings.Join(strings.Fields(problems), " "), want) {
		t.Errorf("problems:\n%s\nwant %s", problems, want)
	}
}

// TestHostileNames: names of files do not reach the terminal as they are.
func TestHostileNames(t *testing.T) {
	text := strings.Replace(ciliumText, "name: a}", `name: "a\e[31mEVIL\nOK: 0 problems"}`, 1)
	if text == ciliumText {
		t.Fatal("the name is not in the text")
	}
	for _, command := range []string{"check", "convert"} {
		out, problems, _ := run(text, command, "-f", "-")
		if all := out + problems; strings.Contains(all, "\x1b") || strings.Contains(all, "\nOK: 0 problems") {
			t.Errorf("%s:\n%q", command, all)
		}
	}
}
