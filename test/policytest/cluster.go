package policytest

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/felixlike/policy/oracle"
)

// The universe is small, so that selectors, ports and blocks often match
// something. Pods have the addresses from firstPod on in the pod CIDRs
// of their node.
const (
	nodeCount     = 2
	maxNamespaces = 4
	firstPod      = 10
)

// Cluster draws a dual-stack cluster of two nodes, 2-4 namespaces, 4-12 pods
// and 0-6 policies. Pods are named uniquely in the whole cluster; objects of
// two draws that have the same name may differ in everything else.
func Cluster(t *rapid.T) *oracle.Cluster {
	c := &oracle.Cluster{}
	for i := range nodeCount {
		c.Nodes = append(c.Nodes, node(i))
	}
	c.Namespaces = times(t, "namespaces", 2, maxNamespaces, func(i int) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("ns%d", i), Labels: labels(t)}}
	})
	namespace := func() string { return pick(t, "namespace", c.Namespaces...).Name }
	c.Pods = times(t, "pods", 4, 12, func(i int) *corev1.Pod {
		return pod(t, i, namespace(), c.Nodes)
	})
	for i := range rapid.IntRange(0, 6).Draw(t, "policies") {
		c.Policies = append(c.Policies, networkPolicy(t, fmt.Sprintf("policy%d", i), namespace()))
	}
	return c
}

// TieredCluster draws a cluster as Cluster does, and in every other one 1-5
// ClusterNetworkPolicies. Its nodes have labels and addresses of other types.
func TieredCluster(t *rapid.T) *oracle.Cluster {
	c := Cluster(t)
	for i, n := range c.Nodes {
		n.Labels = map[string]string{"app": string('a' + rune(i))}
		n.Status.Addresses = append(n.Status.Addresses,
			corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.Name},
			corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: fmt.Sprintf("203.0.113.%d", 7+i)})
	}
	if oneIn(t, 2, "tiers") {
		for i := range rapid.IntRange(1, 5).Draw(t, "cluster policies") {
			c.ClusterPolicies = append(c.ClusterPolicies, clusterNetworkPolicy(t, fmt.Sprintf("cluster%d", i)))
		}
	}
	return c
}

// nodeCIDRs returns the pod CIDRs of the i-th node.
func nodeCIDRs(i int) []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("10.10.%d.0/24", i)),
		netip.MustParsePrefix(fmt.Sprintf("fd00:10:0:%d::/64", i)),
	}
}

func node(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node%d", i+1)}}
	for _, p := range nodeCIDRs(i) {
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, p.String())
	}
	n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	for _, a := range []string{fmt.Sprintf("192.168.50.%d", 11+i), fmt.Sprintf("fd00:50::%d", 11+i)} {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func labels(t *rapid.T) map[string]string {
	all := map[string]string{}
	for _, key := range []string{"app", "tier"} {
		if value := pick(t, key, "", "a", "b", "c"); value != "" {
			all[key] = value
		}
	}
	return all
}

// pod draws the i-th pod. Most run in a network of their own; some are in the
// host's, and some have finished while another pod has their address already.
func pod(t *rapid.T, i int, namespace string, nodes []*corev1.Node) *corev1.Pod {
	on := rapid.IntRange(0, len(nodes)-1).Draw(t, "node")
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("pod%d", i), Labels: labels(t)},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	p.Spec.NodeName = nodes[on].Name
	p.Spec.Containers = times(t, "containers", 1, 2, func(int) corev1.Container { return container(t) })
	if oneIn(t, 4, "init container") {
		init := container(t)
		policy := pick(t, "restartPolicy", "", corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyOnFailure)
		if policy != "" {
			init.RestartPolicy = &policy
		}
		p.Spec.InitContainers = []corev1.Container{init}
	}
	host := i
	switch {
	case oneIn(t, 10, "hostNetwork"):
		p.Spec.HostNetwork = true
		for _, a := range nodes[on].Status.Addresses {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.Address})
		}
		return p
	case oneIn(t, 10, "finished"):
		p.Status.Phase = pick(t, "phase", corev1.PodSucceeded, corev1.PodFailed)
		host = rapid.IntRange(0, i).Draw(t, "reused address")
	}
	for _, a := range podAddresses(on, host) {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	p.Status.PodIP = p.Status.PodIPs[0].IP
	return p
}

// podAddresses returns the addresses of the i-th pod if it is on that node.
func podAddresses(node, i int) []netip.Addr {
	var all []netip.Addr
	for _, p := range nodeCIDRs(node) {
		a := p.Addr().AsSlice()
		a[len(a)-1] = byte(firstPod + i)
		address, _ := netip.AddrFromSlice(a)
		all = append(all, address)
	}
	return all
}

func container(t *rapid.T) corev1.Container {
	c := corev1.Container{Name: "c", Image: "none"}
	c.Ports = times(t, "container ports", 0, 3, func(int) corev1.ContainerPort {
		return corev1.ContainerPort{
			Name:          pick(t, "port name", portNames()...),
			ContainerPort: int32(pick(t, "container port", portNumbers()...)),
			Protocol:      pick(t, "container protocol", append([]corev1.Protocol{""}, protocols()...)...),
		}
	})
	return c
}
