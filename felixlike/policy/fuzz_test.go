package policy_test

import (
	"encoding/json"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/test/policytest"
)

// FuzzSetNetworkPolicy decodes random bytes to a NetworkPolicy: the engine does not panic,
// its updates are consistent, the policy isolates the selected pods, and its deletion
// leaves no record.
func FuzzSetNetworkPolicy(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"namespace":"x","name":"p"},"spec":{"podSelector":{},"ingress":[{}]}}`,
		`{"metadata":{"namespace":"x"},"spec":{"podSelector":{"matchLabels":{"a":"b"}},"egress":[{"to":[{"podSelector":{}},{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.0.0/16"]}}],"ports":[{"port":"web"},{"port":80,"endPort":90}]}]}}`,
		`{"metadata":{"namespace":"x"},"spec":{"policyTypes":["Egress","?"],"podSelector":{"matchExpressions":[{"key":"a","operator":"NotIn","values":["b"]}]}}}`,
		`{"metadata":{"namespace":"x"},"spec":{"ingress":[{"from":[{"namespaceSelector":{"matchExpressions":[{"key":"k","operator":"Exists"}]}},{"ipBlock":{"cidr":"::/0","except":["::1/128"]}}],"ports":[{"protocol":"SCTP"}]}]}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var object networkingv1.NetworkPolicy
		if json.Unmarshal(data, &object) != nil {
			return
		}
		e, m := policy.New("here"), policytest.NewModel()
		flush := func() {
			if err := m.Apply(e.Flush()); err != nil {
				t.Fatal(err)
			}
		}
		e.SetNamespace(newNamespace("x k=v"))
		p := withPort(newPod("x/a", "10.0.0.1", "fd00::1"), "web", 80, "")
		p.Namespace, p.Labels = object.Namespace, object.Spec.PodSelector.MatchLabels
		e.SetPod(p)
		problems := e.SetNetworkPolicy(&object)
		flush()
		for _, endpoint := range m.Endpoints {
			selects := len(object.Spec.PodSelector.MatchExpressions) == 0
			if selects && !endpoint.Ingress.Isolated() && !endpoint.Egress.Isolated() {
				t.Fatalf("isolates nobody: %s, %v", data, problems)
			}
		}
		e.DeleteNetworkPolicy(object.Namespace, object.Name)
		e.DeletePod(policytest.PodID(p))
		e.DeleteNamespace("x")
		flush()
		if left := e.Left() + m.String(); left != "" {
			t.Fatalf("left: %s", left)
		}
	})
}
