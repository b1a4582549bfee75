package oracle

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/model"
)

// TestPathMTU: a node that denies all packets takes a router's answer that a packet was too big, of the packet's own family, and sends none. It takes none of
// pods, and lets none pass that are for others.
func TestPathMTU(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::1"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "p"}, Spec: corev1.PodSpec{NodeName: "n1"}}
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.10.0.2"}, {IP: "fd10::2"}}
	pods := map[model.Family]string{model.IPv4: "10.10.0.2", model.IPv6: "fd10::2"}
	elsewhere := map[model.Family]string{model.IPv4: "203.0.113.10", model.IPv6: "fd99::10"}
	for _, preDNAT := range []string{"false", "true"} {
		all := &antrea.ClusterNetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all", Annotations: map[string]string{preDNATAnnotation: preDNAT}}}
		drop := antrea.Rule{Action: antrea.Drop}
		all.Spec = antrea.PolicySpec{Priority: 1, AppliedTo: []antrea.AppliedTo{{NodeSelector: &metav1.LabelSelector{}}}, Ingress: []antrea.Rule{drop}, Egress: []antrea.Rule{drop}}
		c := &Cluster{Nodes: []*corev1.Node{node}, Pods: []*corev1.Pod{pod}, Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "x"}}}}
		c.Antrea.ClusterPolicies = []*antrea.ClusterNetworkPolicy{all}
		for f, a := range map[model.Family]string{model.IPv4: "192.0.2.1", model.IPv6: "2001:db8::1"} {
			protocol, message := model.PacketTooBig(f)
			p := Packet{Source: netip.MustParseAddr(a), Destination: netip.MustParseAddr(a), Protocol: protocol, Port: message}
			if d := c.DecideHost(model.Ingress, node, p); !d.Allowed || d.Why != PathMTU {
				t.Errorf("pre-DNAT %s, %s: %+v", preDNAT, p, d)
			}
			other := p
			other.Port++
			if d := c.DecideHost(model.Ingress, node, other); d.Allowed {
				t.Errorf("pre-DNAT %s, %s: %+v", preDNAT, other, d)
			}
			forged := p
			forged.Source = netip.MustParseAddr(pods[f])
			if d := c.DecideHost(model.Ingress, node, forged); d.Allowed {
				t.Errorf("pre-DNAT %s, %s: from a pod: %+v", preDNAT, forged, d)
			}
			if d := c.DecidePreDNAT(node, p); !d.Allowed {
				t.Errorf("pre-DNAT %s, %s: %+v", preDNAT, p, d)
			}
			away := p
			away.Destination = netip.MustParseAddr(elsewhere[f])
			if d := c.DecidePreDNAT(node, away); preDNAT == "true" && d.Allowed {
				t.Errorf("%s: to another address: %+v", away, d)
			}
			if d := c.DecideHost(model.Egress, node, p); preDNAT == "false" && d.Allowed {
				t.Errorf("%s: sent: %+v", p, d)
			}
		}
	}
}
