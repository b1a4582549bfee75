package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab/probe"
)

// podInterface is the pod's side of its veth pair.
const podInterface = "eth0"

// Pod is a pod of a running lab.
type Pod struct {
	spec    *podSpec
	node    *Node
	ns      *namespace.Namespace
	station *probe.Station
}

// newPod makes a pod, attaches it to its node and starts its servers. On an
// error it leaves nothing.
func newPod(ctx context.Context, r *record, node *Node, spec *podSpec) (*Pod, error) {
	p := &Pod{spec: spec, node: node}
	if spec.HostNetwork {
		p.ns, p.station = node.ns, node.station
		return p, p.serve()
	}
	ns, err := newNamespace(r, podNamespace(r.Name, spec.ID))
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", spec.ID, err)
	}
	p.ns, p.station = ns, probe.NewStation(ns)
	err = node.ns.Do(func() error {
		_, err := cni.Attach(ctx, p.attachment())
		return err
	})
	if err == nil {
		err = p.serve()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("pod %s: %w", spec.ID, err), p.stop(ctx, r))
	}
	return p, nil
}

// attachment is the pod's request to the CNI plugin's code.
func (p *Pod) attachment() cni.Spec {
	spec := cni.Spec{
		Pod: p.spec.ID, Owner: p.ns.Name(), NetNS: p.ns.Path(), Interface: podInterface, MTU: podMTU,
		Bridge: Bridge, OVSDB: p.node.ovs.DBSocket(),
	}
	for _, a := range p.spec.Addresses {
		family := model.FamilyOf(a)
		spec.Addresses = append(spec.Addresses, a)
		spec.Gateways = append(spec.Gateways, p.node.spec.Gateway(family))
	}
	return spec
}

func (p *Pod) serve() error {
	for _, a := range p.Addresses() {
		for _, port := range p.spec.Ports {
			if err := p.station.Serve(port.Protocol, netip.AddrPortFrom(a, port.Port)); err != nil {
				return err
			}
		}
	}
	return nil
}

// stop ends the pod's servers, detaches it and deletes its namespace.
func (p *Pod) stop(ctx context.Context, r *record) error {
	if p.spec.HostNetwork {
		var errs []error
		for _, a := range p.Addresses() {
			errs = append(errs, p.station.Withdraw(a))
		}
		return errors.Join(errs...)
	}
	return errors.Join(
		p.station.Close(),
		p.node.ns.Do(func() error { return cni.Detach(ctx, p.attachment()) }),
		dropNamespace(r, p.ns),
	)
}

// Node returns the pod's node.
func (p *Pod) Node() *Node { return p.node }

// Namespace returns the pod's network namespace.
func (p *Pod) Namespace() *namespace.Namespace { return p.ns }

// Addresses returns the pod's addresses: its node's if it is on the host's
// network.
func (p *Pod) Addresses() []netip.Addr {
	if p.spec.HostNetwork {
		return p.node.spec.Addresses
	}
	return p.spec.Addresses
}

// Address returns the pod's address of a family, or the zero Addr.
func (p *Pod) Address(f model.Family) netip.Addr {
	for _, a := range p.Addresses() {
		if model.FamilyOf(a) == f {
			return a
		}
	}
	return netip.Addr{}
}
