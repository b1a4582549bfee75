package policyflows

import (
	"net/netip"

	"github.com/felixlike/felixlike/model"
)

// Pod is the interface of a pod of this node, as far as policy goes.
type Pod struct {
	// Interface is the interface's name. This package identifies the pod by it.
	Interface string
	ID        model.PodID
	// Port is the OpenFlow port, if no newer interface has the number, and
	// Addresses the pod's own, without those that other pods have by now. No two open
	// pods share any.
	Port      uint32
	Addresses []netip.Addr
	// Open pods are judged by the policies that apply to them; others are closed.
	Open            bool
	Ingress, Egress model.Applied
}
