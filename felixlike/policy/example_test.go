package policy_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
)

// The driver gives the engine each object, and hands the updates for its node to the managers.
func ExampleEngine_Flush() {
	e := policy.New("here")
	e.SetNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	e.SetPod(newPod("shop/api app=api", "10.10.0.2"))
	e.SetPod(newPod("shop/web app=web", "10.10.0.3"))
	web := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
	e.SetNetworkPolicy(&networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-to-api"},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "api"}},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{web}}},
		},
	})
	for _, u := range e.Flush() {
		switch u := u.(type) {
		case model.GroupUpdate:
			fmt.Println("group of", u.Group.Kind, "gets", u.Added)
		case model.PolicyUpdate:
			fmt.Println("policy", u.Policy.ID, "with rules for ingress:", len(u.Policy.Ingress))
		case model.EndpointUpdate:
			fmt.Println("pod", u.Endpoint.ID, "has policies for ingress:", u.Endpoint.Ingress.NetworkPolicies)
		}
	}
	// Output:
	// group of addresses gets [10.10.0.3]
	// policy networkpolicy/shop/web-to-api with rules for ingress: 1
	// pod shop/api has policies for ingress: [networkpolicy/shop/web-to-api]
	// pod shop/web has policies for ingress: []
}
