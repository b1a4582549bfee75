package kubernetes

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/antrea"
)

// Rights returns all that a Source asks of the API server, Events included. The
// ClusterRole in deploy/ grants these, policystatus.Rights and egress/status.Rights, and nothing else.
func Rights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		read(corev1.GroupName, kindNode, kindNamespace, kindPod, kindService),
		read(discoveryv1.GroupName, kindEndpointSlice),
		read(networkingv1.GroupName, kindPolicy, kindServiceCIDR),
		read(v1alpha2.GroupName, kindClusterPolicy),
		read(antrea.GroupName, kindAntreaTier, kindAntreaClusterGroup, kindAntreaGroup, kindAntreaClusterPolicy, kindAntreaPolicy, kindAntreaPool, kindAntreaEgress),
		read(antrea.OwnGroupName, kindPool, kindEgress),
		{APIGroups: []string{eventsv1.GroupName}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
		{APIGroups: []string{corev1.GroupName}, Resources: []string{"nodes/status"}, Verbs: []string{"patch"}}, // SetNodeCondition
	}
}

// NetNamespaceRights returns what a Source asks beside Rights where it reads NetNamespaces, HostSubnets and EgressNetworkPolicies. Only clusters with isolation grant it.
func NetNamespaceRights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{read(antrea.NetNamespaceGroupName, kindNetNamespace, kindHostSubnet, kindEgressNetworkPolicy)}
}

func read(group string, kinds ...kindName) rbacv1.PolicyRule {
	r := rbacv1.PolicyRule{APIGroups: []string{group}, Verbs: []string{"list", "watch"}}
	for _, k := range kinds {
		r.Resources = append(r.Resources, k.resource().Resource)
	}
	return r
}
