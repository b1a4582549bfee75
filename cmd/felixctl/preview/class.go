package preview

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/model"
)

// end is a source or destination of packets that policy can distinguish: a class of pods, a
// node, or addresses outside the cluster.
type end struct {
	// text is for people.
	text string
	pods []*corev1.Pod
	// policies are those that select the pods, before and after.
	policies [2][]anyPolicy
	node     *corev1.Node
	// alike are the nodes that policies for nodes do not distinguish from node, and itself; nil if nobody has compared them.
	alike []*corev1.Node
	// addr is one of the addresses in the region but not inside of it.
	addr   netip.Addr
	region netip.Prefix
	inside []netip.Prefix
}

func podName(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// selectable reports whether policy can apply to the pod.
func selectable(p *corev1.Pod) bool {
	return !p.Spec.HostNetwork && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed && len(p.Status.PodIPs) > 0
}

// addressOf returns the pod's address of a family.
func addressOf(p *corev1.Pod, f model.Family) netip.Addr {
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && model.FamilyOf(a.Unmap()) == f {
			return a.Unmap()
		}
	}
	return netip.Addr{}
}

// classes groups pods that no policy and no block can distinguish.
func classes(pods []*corev1.Pod, namespaces map[string]*corev1.Namespace, before, after []anyPolicy, blocks []netip.Prefix) []*end {
	byKey := map[string]*end{}
	named := labelNames(slices.Concat(before, after))
	for _, p := range pods {
		if !selectable(p) {
			continue
		}
		k := classKey(p, named, blocks)
		if byKey[k] == nil {
			byKey[k] = &end{}
		}
		byKey[k].pods = append(byKey[k].pods, p)
	}
	var all []*end
	for _, k := range slices.Sorted(maps.Keys(byKey)) {
		c := byKey[k]
		slices.SortFunc(c.pods, func(a, b *corev1.Pod) int { return strings.Compare(podName(a), podName(b)) })
		for when, policies := range [2][]anyPolicy{before, after} {
			for _, p := range policies {
				if p.selects(c.pods[0], namespaces[c.pods[0].Namespace]) {
					c.policies[when] = append(c.policies[when], p)
				}
			}
		}
		c.text = podsText(c.pods)
		all = append(all, c)
	}
	slices.SortStableFunc(all, func(a, b *end) int { return strings.Compare(podName(a.pods[0]), podName(b.pods[0])) })
	return all
}

// labelNames returns, sorted, the labels by which policies distinguish pods. Others, as the
// name of a StatefulSet's pod, would make each pod a class.
func labelNames(policies []anyPolicy) []string {
	names := map[string]bool{}
	for _, p := range policies {
		for _, s := range p.podSelectors() {
			for name := range s.MatchLabels {
				names[name] = true
			}
			for _, e := range s.MatchExpressions {
				names[e.Key] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// classKey is the same for pods that are alike; labels are those that policies name.
func classKey(p *corev1.Pod, labels []string, blocks []netip.Prefix) string {
	var key strings.Builder
	fmt.Fprintf(&key, "%s\n", p.Namespace)
	for _, k := range labels {
		if value, has := p.Labels[k]; has {
			fmt.Fprintf(&key, "%s=%s\n", k, value)
		}
	}
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		fmt.Fprintf(&key, "%t", c.RestartPolicy != nil)
		for _, port := range c.Ports {
			fmt.Fprintf(&key, " %s:%s:%d", port.Name, port.Protocol, port.ContainerPort)
		}
	}
	for _, f := range model.Families() {
		a := addressOf(p, f)
		fmt.Fprintf(&key, "\n%t ", a.IsValid())
		for i, b := range blocks {
			if a.IsValid() && b.Contains(a) {
				fmt.Fprintf(&key, "%d ", i)
			}
		}
	}
	return key.String()
}

// podsText names some of the pods.
func podsText(pods []*corev1.Pod) string {
	if len(pods) == 1 {
		return podName(pods[0])
	}
	return fmt.Sprintf("%s (+%d alike)", podName(pods[0]), len(pods)-1)
}

// nodes returns each node as an end, with those of the policies that apply to the node itself.
func nodes(all []*corev1.Node, policies []anyPolicy) []*end {
	var out []*end
	for _, n := range all {
		e := &end{text: "node " + n.Name, node: n}
		for _, p := range policies {
			if p.selectsNode(n) {
				e.policies[0] = append(e.policies[0], p)
			}
		}
		out = append(out, e)
	}
	return out
}

// nodeAddress returns a node's address of a family.
func nodeAddress(n *corev1.Node, f model.Family) netip.Addr {
	for _, a := range n.Status.Addresses {
		addr, err := netip.ParseAddr(a.Address)
		if err == nil && a.Type == corev1.NodeInternalIP && model.FamilyOf(addr.Unmap()) == f {
			return addr.Unmap()
		}
	}
	return netip.Addr{}
}

// names lists the members of the end.
func (e *end) names() []string {
	if len(e.pods) == 0 {
		return []string{e.text}
	}
	names := make([]string, len(e.pods))
	for i, p := range e.pods {
		names[i] = podName(p)
	}
	return names
}
