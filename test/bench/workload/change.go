package workload

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/felixlike/felixlike/model"
)

// The methods below make the changes of the benchmark. The i-th
// change of a kind touches another object than the one before it, as changes
// in a cluster do.

// ChangedPolicy returns the i-th policy with one rule changed, and as it was:
// the first ingress rule is for another port.
func (w Workload) ChangedPolicy(i int) (changed, before *networkingv1.NetworkPolicy) {
	i %= w.Policies
	changed = w.policy(i)
	number := intstr.FromInt32(9000)
	changed.Spec.Ingress[0].Ports[0].Port = &number
	return changed, w.policy(i)
}

// Member returns a new pod of another node, which joins one group.
func (w Workload) Member(i int) *corev1.Pod {
	// Behind the addresses that the node's own pods have.
	cidr := peerCIDR(i % w.peerNodes())
	return w.memberPod(fmt.Sprintf("joined-%04d", i), i%w.Groups, i, nth(cidr, 2+peersPerNode+i/w.peerNodes()))
}

// Endpoint returns a new pod of this node with its attachment. It has as many
// policies as the others, but every other one in order, so that its list is
// one that no other pod has.
func (w Workload) Endpoint(i int) (*corev1.Pod, model.Attachment) {
	number, perNamespace := w.Endpoints+i, w.policiesPerNamespace()
	labels := map[string]string{}
	for n := range w.PoliciesPerEndpoint {
		labels[policyLabel((i/w.Namespaces+2*n)%perNamespace)] = "yes"
	}
	p := pod(targets(i%w.Namespaces), fmt.Sprintf("added-%04d", i), Node, endpointAddress(number), labels)
	return p, attachment(p, number)
}

// AddedPolicy returns a new policy, which applies to the same pods as the
// i-th.
func (w Workload) AddedPolicy(i int) *networkingv1.NetworkPolicy {
	perNamespace := w.policiesPerNamespace()
	of := i * (perNamespace + 1) % w.Policies
	return w.newPolicy(targets(of/perNamespace), fmt.Sprintf("added-%04d", i), policyLabel(of%perNamespace), of)
}
