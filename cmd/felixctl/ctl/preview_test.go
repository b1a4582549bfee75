package ctl

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/antrea"
)

const (
	networkPolicyYAML = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: x}\nspec: {podSelector: {}}\n---\n"
	clusterPolicyYAML = "apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: c}\n" +
		"spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}\n"
)

// TestPreviewOfKinds: a change has policies of both kinds.
func TestPreviewOfKinds(t *testing.T) {
	c, err := readChange([]string{"-"}, []string{"x/q", "d"}, strings.NewReader(networkPolicyYAML+clusterPolicyYAML), io.Discard)
	if err != nil || len(c.Set) != 1 || len(c.SetCluster) != 1 || c.SetCluster[0].Name != "c" {
		t.Fatalf("%+v, %v", c, err)
	}
	if len(c.Delete) != 1 || c.Delete[0].String() != "x/q" || len(c.DeleteCluster) != 1 || c.DeleteCluster[0] != "d" {
		t.Errorf("deleted: %v, %v", c.Delete, c.DeleteCluster)
	}
}

// TestPreviewOfAntreasKinds: a change has objects of Antrea's API, and names of its policies to
// delete. One that cannot be understood is an error.
func TestPreviewOfAntreasKinds(t *testing.T) {
	const tier = "apiVersion: crd.antrea.io/v1beta1\nkind: Tier\nmetadata: {name: t}\nspec: {priority: 7}\n"
	c, err := readChange([]string{"-"}, []string{"antrea:x/q", "antrea-cluster:d", "egressnetworkpolicy:x/e"}, strings.NewReader(tier), io.Discard)
	if err != nil || len(c.SetAntrea) != 1 || c.SetAntrea[0].GetName() != "t" {
		t.Fatalf("%+v, %v", c, err)
	}
	want := []antrea.ID{{Kind: antrea.KindNetworkPolicy, Namespace: "x", Name: "q"}, {Kind: antrea.KindClusterNetworkPolicy, Name: "d"}, {Kind: antrea.KindEgressNetworkPolicy, Namespace: "x", Name: "e"}}
	if !slices.Equal(c.DeleteAntrea, want) || len(c.Delete)+len(c.DeleteCluster) > 0 {
		t.Errorf("deleted: %+v", c)
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
