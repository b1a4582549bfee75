package ctl

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

const (
	networkPolicyYAML = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: x}\nspec: {podSelector: {}}\n---\n"
	clusterPolicyYAML = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: c}\n" +
		"spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}\n"
)

// TestPreviewOfKinds: a change has policies of both kinds.
func TestPreviewOfKinds(t *testing.T) {
	c, err := readChange([]string{"-"}, []string{"networkpolicy.networking.k8s.io/x/q", "clusternetworkpolicy.policy.networking.k8s.io/d"}, strings.NewReader(networkPolicyYAML+clusterPolicyYAML), io.Discard)
	if err != nil || len(c.Set) != 1 || len(c.SetCluster) != 1 || c.SetCluster[0].Name != "c" {
		t.Fatalf("%+v, %v", c, err)
	}
	if want := []model.ObjectRef{{Kind: "NetworkPolicy", Namespace: "x", Name: "q"}, {Kind: "ClusterNetworkPolicy", Name: "d"}}; !slices.Equal(c.Delete, want) {
		t.Errorf("deleted: %v", c.Delete)
	}
}

// TestPreviewOfAntreasKinds: a change has objects of Antrea's API, and names of its policies to
// delete. One that cannot be understood is an error.
func TestPreviewOfAntreasKinds(t *testing.T) {
	const tier = "apiVersion: crd.antrea.io/v1beta1\nkind: Tier\nmetadata: {name: t}\nspec: {priority: 7}\n"
	c, err := readChange([]string{"-"}, []string{"networkpolicy.crd.antrea.io/x/q", "clusternetworkpolicy.crd.antrea.io/d", "egressnetworkpolicy/x/e#2@y", "netnamespace.network.openshift.io/n"}, strings.NewReader(tier), io.Discard)
	if err != nil || len(c.SetAntrea) != 1 || c.SetAntrea[0].GetName() != "t" {
		t.Fatalf("%+v, %v", c, err)
	}
	for i, id := range []antrea.ID{
		{Kind: antrea.KindNetworkPolicy, Namespace: "x", Name: "q"},
		{Kind: antrea.KindClusterNetworkPolicy, Name: "d"},
		{Kind: antrea.KindEgressNetworkPolicy, Namespace: "x", Name: "e"},
		{Kind: antrea.KindNetNamespace, Name: "n"},
	} {
		if len(c.Delete) != 4 || c.Delete[i] != id.Ref() {
			t.Fatalf("deleted: %+v", c.Delete)
		}
	}
	for _, name := range []string{"", "d", "x/q", "networkpolicy/q", "clusternetworkpolicy/x/d", "networkpolicy//q", "networkpolicy/x/", "network/x/q", "networkpolicy/x/q/r", "networkpolic/x/q"} {
		if _, err := readChange(nil, []string{name}, nil, io.Discard); err == nil || !strings.Contains(err.Error(), "networkpolicy/NAMESPACE/NAME, clusternetworkpolicy/NAME, networkpolicy.crd.antrea.io/NAMESPACE/NAME") {
			t.Errorf("%q: error %v", name, err)
		}
	}
	if _, err := readChange([]string{"-"}, nil, strings.NewReader(strings.Replace(tier, "priority", "prioritee", 1)), io.Discard); err == nil || !strings.Contains(err.Error(), "prioritee") {
		t.Errorf("error %v", err)
	}
}

// TestPreviewOfOtherKinds: a policy that preview does not judge, or cannot understand, is
// an error, and not left out.
func TestPreviewOfOtherKinds(t *testing.T) {
	for text, want := range map[string]string{
		strings.Replace(clusterPolicyYAML, "ingress", "ingres", 1):                                       "spec.ingres: unknown field",
		"apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: c}\n": "AdminNetworkPolicy is not supported",
	} {
		_, err := readChange([]string{"-"}, nil, strings.NewReader(networkPolicyYAML+text), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestPreviewServices: an empty list of Services is known, and differs from none that is given. Policies and Services may both be in standard input.
func TestPreviewServices(t *testing.T) {
	if all, err := readServices("-", strings.NewReader("kind: List\nitems: []\n")); err != nil || all == nil || len(all) > 0 {
		t.Errorf("an empty list: %v, %v", all, err)
	}
	if all, err := readServices("", nil); err != nil || all != nil {
		t.Errorf("no flag: %v, %v", all, err)
	}
	c := previewCommand()
	const service = "kind: Service\napiVersion: v1\nmetadata: {namespace: x, name: s}\nspec: {ports: [{port: 80}]}\n"
	if all, err := readServices("-", strings.NewReader(networkPolicyYAML+service)); err != nil || len(all) != 1 {
		t.Errorf("among policies: %v, %v", all, err)
	}
	c.SetArgs([]string{"-f", "-", "--services", "-", "--socket", t.TempDir() + "/none"})
	c.SetIn(strings.NewReader(networkPolicyYAML + service))
	c.SetOut(io.Discard)
	c.SetErr(io.Discard)
	if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "no agent listens") {
		t.Errorf("both in standard input: %v", err)
	}
}
