package cni

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/felixlike/felixlike/cni/protocol"
	"github.com/felixlike/felixlike/model"
)

// Add attaches a sandbox. It answers when the pod's policy is in force;
// if that takes too long, it undoes its work, and the error names the missing condition.
func (s *Server) Add(ctx context.Context, r *protocol.SandboxRequest) (*protocol.AddReply, error) {
	spec, err := specToAdd(r.Sandbox)
	if err != nil {
		return nil, err
	}
	s.sweeping.RLock()
	defer s.sweeping.RUnlock()
	defer s.pods.lock(spec.Pod.String())()
	node, err := s.node(ctx)
	if err != nil {
		return nil, err
	}
	if spec.MTU = s.opts.MTU(); spec.MTU == 0 {
		return nil, errors.New("the MTU of this node's network is not known yet")
	}
	fresh, err := s.address(ctx, &spec, node)
	if err != nil {
		return nil, err
	}
	attachment, err := s.attach(ctx, spec)
	if err == nil {
		err = s.programmed(ctx, attachment, r.Sandbox.PodUID)
	}
	if err != nil && fresh {
		err = errors.Join(err, undo(ctx, func(ctx context.Context) error { return s.remove(ctx, spec) }))
	}
	if err != nil {
		return nil, err
	}
	return answer(spec, attachment)
}

// specToAdd returns the Spec of a sandbox with a network namespace.
func specToAdd(sandbox protocol.Sandbox) (Spec, error) {
	spec, err := specOf(sandbox)
	if err == nil && spec.NetNS == "" {
		err = fmt.Errorf("%w: no network namespace", errSandbox)
	}
	return spec, err
}

// specOf returns the Spec of the sandbox, without addresses and MTU.
func specOf(sandbox protocol.Sandbox) (Spec, error) {
	spec := Spec{Pod: podOf(sandbox), Owner: sandbox.ContainerID, NetNS: sandbox.NetNS, Interface: sandbox.Interface}
	if err := spec.check(); err != nil {
		return spec, fmt.Errorf("%w: %w", errSandbox, err)
	}
	return spec, nil
}

func podOf(sandbox protocol.Sandbox) model.PodID {
	return model.PodID{Namespace: sandbox.PodNamespace, Name: sandbox.PodName}
}

// node returns this node, for which it waits.
func (s *Server) node(ctx context.Context) (*model.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	node, err := s.opts.Agent.LocalNode(ctx)
	if err != nil {
		return nil, fmt.Errorf("this node is not known: %w", err)
	}
	if len(node.PodCIDRs) == 0 {
		return nil, fmt.Errorf("node %s has no podCIDR yet", node.Name)
	}
	return node, nil
}

// address sets the pod's addresses: the recorded ones if it is attached already, else new
// ones. It reports whether they are new.
func (s *Server) address(ctx context.Context, spec *Spec, node *model.Node) (fresh bool, err error) {
	have, err := s.attacher.Attached(ctx, *spec)
	if err != nil && have == nil {
		return false, err
	}
	if have != nil && have.PodInterface == spec.Interface && len(have.Addresses) > 0 {
		spec.Addresses = slices.Clone(have.Addresses)
		return false, s.gateways(spec, node)
	}
	if have != nil && have.PodInterface != spec.Interface {
		return false, fmt.Errorf("%w: it has the interface %s already, and a pod has only one", errSandbox, have.PodInterface)
	}
	if spec.Addresses, err = s.ipam.add(ctx, node, spec.Owner, spec.Interface, spec.NetNS); err != nil {
		return false, err
	}
	if err := s.gateways(spec, node); err != nil {
		return true, errors.Join(err, undo(ctx, func(ctx context.Context) error { return s.ipam.del(ctx, spec.Owner, spec.Interface) }))
	}
	return true, nil
}

// gateways sets the next hop of each address. It refuses an address outside of this node's
// prefixes: they have changed since it was reserved, and no route leads to it.
func (s *Server) gateways(spec *Spec, node *model.Node) error {
	spec.Gateways = nil
	for _, a := range spec.Addresses {
		family := model.FamilyOf(a)
		if !node.PodCIDR(family).Contains(a) {
			return fmt.Errorf("address %s of pod %s is not in node %s's podCIDR %s", a, spec.Pod, node.Name, node.PodCIDR(family))
		}
		spec.Gateways = append(spec.Gateways, node.Gateway(family))
	}
	return nil
}

func (s *Server) attach(ctx context.Context, spec Spec) (*model.Attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, attachWait)
	defer cancel()
	return s.attacher.Attach(ctx, spec)
}

// programmed waits until the pod's policy is in force.
func (s *requests) programmed(ctx context.Context, attachment *model.Attachment, uid string) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	err := s.opts.Agent.WaitPod(ctx, attachment, uid)
	s.opts.Waited(time.Since(began))
	if err != nil {
		return fmt.Errorf("policy of pod %s is not in force: %w", attachment.Pod, err)
	}
	return nil
}

// remove takes the pod off the bridge, and only then releases its addresses.
func (s *Server) remove(ctx context.Context, spec Spec) error {
	if err := s.attacher.Detach(ctx, spec); err != nil {
		return err
	}
	return s.ipam.del(ctx, spec.Owner, spec.Interface)
}

// answer is the reply for an attachment.
func answer(spec Spec, attachment *model.Attachment) (*protocol.AddReply, error) {
	hostMAC, err := macOf(attachment.Interface)
	if err != nil {
		return nil, err
	}
	reply := &protocol.AddReply{
		Host: protocol.Interface{Name: attachment.Interface, MAC: hostMAC, MTU: spec.MTU},
		Pod:  protocol.Interface{Name: spec.Interface, MAC: attachment.MAC.String(), MTU: spec.MTU},
	}
	addresses := slices.Clone(spec.Addresses)
	slices.SortFunc(addresses, netip.Addr.Compare)
	for _, a := range addresses {
		at := slices.Index(spec.Addresses, a)
		reply.Addresses = append(reply.Addresses, protocol.Address{Prefix: netip.PrefixFrom(a, a.BitLen()), Gateway: spec.Gateways[at]})
	}
	return reply, nil
}
