package preview

import (
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// TestProgram lists the rules and flows of a new policy, by its name, and nothing for
// one that is there already.
func TestProgram(t *testing.T) {
	o := objects(t, shop)
	c := Change{Set: objects(t, dbPolicy).Policies}
	now := o
	now.Policies = c.Set
	like := control.Model{Node: "n1", HostAddresses: []netip.Addr{netip.MustParseAddr("192.168.0.1")}}
	for _, u := range engineOf(o, nil).Flush() {
		like.Add(u)
	}
	for i, pod := range []string{"db", "web-1"} {
		like.Attachments = append(like.Attachments, control.Attachment{
			Pod: model.PodID{Namespace: "shop", Name: pod}, Interface: "fx-" + pod, OFPort: uint32(10 + i), MAC: "0a:00:00:00:00:01",
			Addresses: []netip.Addr{addressOf(o.Pods[i], model.IPv4)},
		})
	}
	for _, like.Backend = range []string{config.NFTables, config.IPTablesLegacy, config.OpenFlow} {
		var p Preview
		if err := p.Program(o, c, like); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, object := range p.Programmed {
			text.WriteString(object.Note)
			for _, change := range object.Changes {
				text.WriteString(change.Before + change.After + change.Note)
			}
		}
		if len(p.Programmed) == 0 || !strings.Contains(text.String(), "networkpolicy/shop/db ingress[0]") {
			t.Errorf("%s: %+v", like.Backend, p.Programmed)
		}
		var same Preview
		if err := same.Program(now, c, like); err != nil || len(same.Programmed) > 0 {
			t.Errorf("%s: the same policy again: %+v, %v", like.Backend, same.Programmed, err)
		}
	}
}

// TestProgramWarns: a policy that only the switch has no room for is named before it is created.
func TestProgramWarns(t *testing.T) {
	o := objects(t, shop)
	p := &v1alpha2.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "many"}}
	p.Spec.Tier, p.Spec.Subject.Namespaces = v1alpha2.BaselineTier, &metav1.LabelSelector{}
	for i := range 200 {
		rule := v1alpha2.ClusterNetworkPolicyEgressRule{
			Action: []v1alpha2.ClusterNetworkPolicyRuleAction{v1alpha2.ClusterNetworkPolicyRuleActionAccept, v1alpha2.ClusterNetworkPolicyRuleActionDeny}[i%2],
			To:     []v1alpha2.ClusterNetworkPolicyEgressPeer{{Networks: []v1alpha2.CIDR{"192.0.2.0/24"}}},
		}
		p.Spec.Egress = append(p.Spec.Egress, rule)
	}
	for backend, want := range map[string]int{config.OpenFlow: 1, config.NFTables: 0} {
		like := control.Model{Node: "n1", Backend: backend}
		var got Preview
		if err := got.Program(o, Change{SetCluster: []*v1alpha2.ClusterNetworkPolicy{p}}, like); err != nil {
			t.Fatal(err)
		}
		if len(got.Warnings) != want || want > 0 && !strings.Contains(got.Warnings[0], "egress of clusternetworkpolicy/many") {
			t.Errorf("%s: warnings %q", backend, got.Warnings)
		}
	}
}
