package oracle

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/model"
)

// question is a packet, as the policies of one end see it.
type question struct {
	cluster   *Cluster
	direction model.Direction
	subject   *corev1.Pod
	// node is the subject in place of a pod. preDNAT asks its policies before DNAT in place of the others.
	node    *corev1.Node
	preDNAT bool
	// away is true of a packet before DNAT to another address than the node's own.
	away    bool
	peer    netip.Addr
	peerPod *corev1.Pod
	// destination is the pod that the packet goes to. Names of ports are looked up in it.
	destination *corev1.Pod
	packet      Packet
}

// question returns the question about a packet between two pods to one of its ends. A pod is nil if the packet's address is none of a pod.
func (c *Cluster) question(d model.Direction, p Packet, source, destination *corev1.Pod) question {
	q := question{cluster: c, direction: d, packet: p, destination: destination}
	own := p.Destination
	q.subject, q.peer, q.peerPod = destination, p.Source, source
	if d == model.Egress {
		own = p.Source
		q.subject, q.peer, q.peerPod = source, p.Destination, destination
	}
	if q.subject == nil {
		q.node = c.NodeAt(own)
	}
	return q
}
