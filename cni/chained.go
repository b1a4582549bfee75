package cni

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/felixlike/felixlike/cni/protocol"
	"github.com/felixlike/felixlike/cni/record"
	"github.com/felixlike/felixlike/internal/listing"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/internal/rootsocket"
	"github.com/felixlike/felixlike/internal/socketapi"
	"github.com/felixlike/felixlike/model"
)

// recordsOf returns the directory of the records beside a socket. A reboot of the node empties it, as it ends all pods.
func recordsOf(socket string) record.Dir {
	return record.Dir(filepath.Join(filepath.Dir(socket), "attachments"))
}

// ChainedServer serves the CNI plugin where it follows another plugin, which makes the pods' interfaces
// (trafficMode networkPolicyOnly). It makes and removes no interface: it records them.
type ChainedServer struct {
	requests
	*Chained
}

// NewChainedServer returns a server that does not run yet.
func NewChainedServer(opts ServerOptions, pods *Chained) *ChainedServer {
	return &ChainedServer{newRequests(opts), pods}
}

// Run serves until ctx ends. All threads of the process must be in the node's network namespace.
func (s *ChainedServer) Run(ctx context.Context) error {
	listener, err := rootsocket.Listen(s.opts.Socket)
	if err != nil {
		return fmt.Errorf("cni socket %s: %w", s.opts.Socket, err)
	}
	defer listener.Close()
	return s.serve(ctx, listener, []socketapi.Route{
		socketapi.Post(protocol.AddPath, refuseAdd),
		socketapi.Post(protocol.ChainPath, s.Chain),
		socketapi.Post(protocol.DelPath, s.Del),
		socketapi.Post(protocol.CheckPath, s.Check),
		socketapi.Post(protocol.StatusPath, s.Status),
		socketapi.Post(protocol.GCPath, s.GC),
	})
}

// refuseAdd refuses a plugin that follows no other.
func refuseAdd(context.Context, *protocol.SandboxRequest) (protocol.AddReply, error) {
	return protocol.AddReply{}, fmt.Errorf("%w: with trafficMode networkPolicyOnly, felixlike-cni must follow the plugin that makes the pod's interface", errSandbox)
}

// Chain records the interface of a sandbox. It answers when the pod's policy is in force; if that takes too long, it
// forgets the interface, and the error names the missing condition.
func (s *ChainedServer) Chain(ctx context.Context, r *protocol.ChainRequest) (protocol.Empty, error) {
	spec, err := specToAdd(r.Sandbox)
	if err != nil {
		return protocol.Empty{}, err
	}
	s.sweeping.RLock()
	defer s.sweeping.RUnlock()
	defer s.pods.lock(spec.Pod.String())()
	a, err := find(spec, r.Addresses)
	if err != nil {
		return protocol.Empty{}, err
	}
	if other := s.otherInterface(*a); other != "" {
		return protocol.Empty{}, fmt.Errorf("%w: it has the interface %s already, and a pod has only one", errSandbox, other)
	}
	fresh, err := s.put(*a)
	if err == nil {
		err = s.programmed(ctx, a, r.Sandbox.PodUID)
	}
	if err != nil && fresh {
		err = errors.Join(err, s.remove(func(b model.Attachment) bool { return ownerOf(b) == ownerOf(*a) }))
	}
	return protocol.Empty{}, err
}

// Del forgets the interface of a sandbox.
func (s *ChainedServer) Del(_ context.Context, r *protocol.SandboxRequest) (protocol.Empty, error) {
	who := owner{r.Sandbox.ContainerID, r.Sandbox.Interface}
	if who.sandbox == "" || who.iface == "" {
		return protocol.Empty{}, fmt.Errorf("%w: no container id or no interface", errSandbox)
	}
	s.sweeping.RLock()
	defer s.sweeping.RUnlock()
	return protocol.Empty{}, s.remove(func(a model.Attachment) bool { return ownerOf(a) == who })
}

// Check fails unless the sandbox has the interface that Chain recorded, and its policy is in force.
func (s *ChainedServer) Check(ctx context.Context, r *protocol.CheckRequest) (protocol.Empty, error) {
	spec, err := specToAdd(r.Sandbox)
	if err != nil {
		return protocol.Empty{}, err
	}
	s.sweeping.RLock()
	defer s.sweeping.RUnlock()
	defer s.pods.lock(spec.Pod.String())()
	a, err := find(spec, r.Addresses)
	if err != nil {
		return protocol.Empty{}, fmt.Errorf("pod %s is %w: %w", spec.Pod, errNotAsAdded, err)
	}
	if !s.has(*a) {
		return protocol.Empty{}, fmt.Errorf("pod %s is %w: its interface %s is not recorded as it is now", spec.Pod, errNotAsAdded, a.Interface)
	}
	return protocol.Empty{}, s.programmed(ctx, a, r.Sandbox.PodUID)
}

// Status fails unless Chain would succeed.
func (s *ChainedServer) Status(ctx context.Context, _ *protocol.Empty) (protocol.Empty, error) {
	if err := s.opts.Agent.Available(ctx); err != nil {
		return protocol.Empty{}, fmt.Errorf("%w: %w", errNotReady, err)
	}
	return protocol.Empty{}, nil
}

// GC forgets the interfaces that are not listed and not there any more. One that is there keeps its policy: the list may
// be that of another network of the runtime.
func (s *ChainedServer) GC(_ context.Context, r *protocol.GCRequest) (protocol.Empty, error) {
	// The plugin sends an empty list if no attachment is valid.
	if r.Valid == nil {
		return protocol.Empty{}, fmt.Errorf("%w: no list of valid attachments", errSandbox)
	}
	valid := map[owner]bool{}
	for _, a := range r.Valid {
		valid[owner{a.ContainerID, a.Interface}] = true
	}
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	return protocol.Empty{}, s.remove(func(a model.Attachment) bool { return !valid[ownerOf(a)] && isGone(a.Interface) })
}

// find returns the attachment of a sandbox whose interface another plugin has made. The addresses are prefixes.
func find(spec Spec, addresses []string) (*model.Attachment, error) {
	a := &model.Attachment{Pod: spec.Pod, Sandbox: spec.Owner, PodInterface: spec.Interface, NetNS: spec.NetNS}
	for _, text := range addresses {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%w: address %q: %w", errSandbox, text, err)
		}
		a.Addresses = append(a.Addresses, p.Addr().Unmap())
	}
	if slices.SortFunc(a.Addresses, netip.Addr.Compare); len(a.Addresses) == 0 {
		return nil, fmt.Errorf("%w: the plugins before felixlike-cni gave interface %s no address", errSandbox, spec.Interface)
	}
	podNS, err := openNamespace(spec.NetNS)
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	defer podNS.Close()
	var pod netlink.Link
	err = namespace.In(int(podNS.Fd()), func() error {
		if pod, err = netlink.LinkByName(spec.Interface); err != nil {
			return fmt.Errorf("interface %s: %w", spec.Interface, err)
		}
		return hasAddresses(pod, a.Addresses)
	})
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", spec.Pod, err)
	}
	a.MAC = pod.Attrs().HardwareAddr
	if pod.Type() != "veth" {
		return nil, fmt.Errorf("%w: interface %s is a %s, but networkPolicyOnly needs a veth pair, whose other end is on the node", errSandbox, spec.Interface, pod.Type())
	}
	host, err := netlink.LinkByIndex(pod.Attrs().ParentIndex)
	if err != nil || !peers(host, pod, podNS) {
		return nil, fmt.Errorf("%w: the other end of interface %s is not in this node's network namespace", errSandbox, spec.Interface)
	}
	a.Interface = host.Attrs().Name
	if strings.HasSuffix(a.Interface, "*") || strings.HasSuffix(a.Interface, "+") {
		return nil, fmt.Errorf("%w: no rule can match the name of interface %q alone", errSandbox, a.Interface)
	}
	a.Bridge, err = bridgeOf(host)
	return a, err
}

// peers reports whether an interface of this namespace is the other end of a pod's. Indexes alone prove nothing: the
// other end may be in a third namespace, where another interface has the same index.
func peers(host, pod netlink.Link, podNS *os.File) bool {
	id, err := netlink.GetNetNsIdByFd(int(podNS.Fd()))
	return err == nil && id >= 0 && host.Type() == "veth" && host.Attrs().ParentIndex == pod.Attrs().Index && host.Attrs().NetNsID == id
}

// hasAddresses fails unless the interface has the addresses. It is run in the pod's namespace.
func hasAddresses(link netlink.Link, wanted []netip.Addr) error {
	have, err := listing.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("addresses of %s: %w", link.Attrs().Name, err)
	}
	for _, want := range wanted {
		if !slices.ContainsFunc(have, func(h netlink.Addr) bool { return h.IP.Equal(want.AsSlice()) }) {
			return fmt.Errorf("interface %s has no address %s", link.Attrs().Name, want)
		}
	}
	return nil
}

// bridgeOf returns the bridge that the host side of a pod's pair is a port of, or "". All packets from a bridge with pods
// must be of these pods, so a bridge with another port than pairs is refused.
func bridgeOf(host netlink.Link) (string, error) {
	if host.Attrs().MasterIndex == 0 {
		return "", nil
	}
	master, err := netlink.LinkByIndex(host.Attrs().MasterIndex)
	if err != nil {
		return "", fmt.Errorf("master of interface %s: %w", host.Attrs().Name, err)
	}
	name := master.Attrs().Name
	if master.Type() != "bridge" {
		return "", fmt.Errorf("%w: interface %s belongs to %s, a %s: networkPolicyOnly knows bridges only", errSandbox, host.Attrs().Name, name, master.Type())
	}
	ports, err := listing.Whole(netlink.LinkList)
	if err != nil {
		return "", fmt.Errorf("ports of bridge %s: %w", name, err)
	}
	var others []string
	for _, p := range ports {
		if p.Attrs().MasterIndex == master.Attrs().Index && p.Type() != "veth" {
			others = append(others, p.Attrs().Name)
		}
	}
	if len(others) > 0 {
		return "", fmt.Errorf("%w: bridge %s has the port %s, which is no pod's: networkPolicyOnly needs a bridge of pods alone", errSandbox, name, strings.Join(others, ", "))
	}
	return name, nil
}

// sameAttachment reports whether two attachments are equal.
func sameAttachment(a, b model.Attachment) bool {
	return a.Pod == b.Pod && ownerOf(a) == ownerOf(b) && a.NetNS == b.NetNS && a.Interface == b.Interface && a.Bridge == b.Bridge &&
		slices.Equal(a.MAC, b.MAC) && slices.Equal(a.Addresses, b.Addresses)
}
