package ctl

import (
	"io"
	"strings"
	"testing"
)

// TestPreviewOfOtherKinds: a policy that preview does not judge is an error, and not
// left out.
func TestPreviewOfOtherKinds(t *testing.T) {
	const networkPolicy = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, namespace: x}\nspec: {podSelector: {}}\n---\n"
	const spec = "spec: {tier: Admin, priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}\n"
	for text, want := range map[string]string{
		"apiVersion: policy.networking.k8s.io/v1alpha2\nkind: ClusterNetworkPolicy\nmetadata: {name: c}\n" + spec: "ClusterNetworkPolicy c: preview takes NetworkPolicies only",
		"apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: c}\n":          "AdminNetworkPolicy is not supported",
	} {
		_, err := readChange([]string{"-"}, nil, strings.NewReader(networkPolicy+text), io.Discard)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
