package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
)

// World is the state of the nodes asked, and the Kubernetes objects of their agents.
type World struct {
	// Nodes have answered. Silent says why others have not, by name.
	Nodes   []*Node
	Silent  map[string]string
	Objects control.Objects
	Names   trace.Namer
	oracle  *oracle.Cluster
	sites   []*trace.Site
}

// Read reads the nodes, and the objects of the first agent that answers. silent says why other nodes cannot be asked. It fails if none
// answers. One whose state was read elsewhere has no agent here, so it is never the first.
func Read(ctx context.Context, nodes []*Node, silent map[string]string) (*World, error) {
	w := &World{Silent: map[string]string{}}
	maps.Copy(w.Silent, silent)
	var failed error
	for _, n := range nodes {
		switch err := n.read(ctx); {
		case err == nil:
			w.Nodes = append(w.Nodes, n)
		case n.Name == "" || ctx.Err() != nil:
			return nil, err
		default:
			failed = errors.Join(failed, err)
			w.Silent[n.Name] = err.Error()
		}
	}
	if len(w.Nodes) == 0 || w.Nodes[0].Elsewhere() {
		return nil, failed
	}
	if err := w.readObjects(ctx, w.Nodes[0].Agent); err != nil {
		return nil, err
	}
	names := newNamer(w.Objects)
	for _, n := range w.Nodes {
		names.add(n)
		w.sites = append(w.sites, n.Site)
	}
	w.Names, w.oracle.Hosts = names, hosts(w.Objects, w.Nodes)
	return w, nil
}

// ReadObjects reads the Kubernetes objects of an agent alone: the world has no nodes to follow packets through.
func ReadObjects(ctx context.Context, agent *control.Client) (*World, error) {
	w := &World{}
	return w, w.readObjects(ctx, agent)
}

func (w *World) readObjects(ctx context.Context, agent *control.Client) (err error) {
	if w.Objects, err = agent.Objects(ctx); err != nil {
		return err
	}
	w.oracle = &oracle.Cluster{Nodes: w.Objects.Nodes, Namespaces: w.Objects.Namespaces, Pods: w.Objects.Pods, Policies: w.Objects.Policies, ClusterPolicies: w.Objects.ClusterPolicies, Antrea: w.Objects.Antrea}
	return nil
}

// hosts returns what the agents know about the nodes beyond their objects. Nodes that were not asked are taken to have the failsafe ports
// of the first one.
func hosts(o control.Objects, asked []*Node) map[string]oracle.Host {
	all := map[string]oracle.Host{}
	of := func(m *control.Model) (h oracle.Host) {
		if h.Addresses = m.HostAddresses; m.Failsafe != nil {
			h.Failsafe = *m.Failsafe
		}
		return h
	}
	for _, n := range o.Nodes {
		all[n.Name] = oracle.Host{Failsafe: of(&asked[0].Model).Failsafe}
	}
	for _, n := range asked {
		all[n.Name] = of(&n.Model)
	}
	return all
}

// Judge asks the policies about a packet.
func (w *World) Judge(p trace.Packet) (*trace.Judgement, error) {
	return trace.Judge(p, w.oracle, w.Names)
}

// BeforeDNAT returns what the policies of a node before DNAT decide about a packet from elsewhere, and its way through what is programmed.
func (w *World) BeforeDNAT(p trace.Packet, n *Node) (oracle.Decision, *trace.Path, error) {
	path, err := trace.BeforeDNAT(p, n.Site, w.Names)
	decision := oracle.Decision{Allowed: true}
	if i := slices.IndexFunc(w.Objects.Nodes, func(o *corev1.Node) bool { return o.Name == n.Name }); i >= 0 {
		decision = w.oracle.DecidePreDNAT(w.Objects.Nodes[i], oracle.Packet{Source: p.Source, Destination: p.Destination, Protocol: p.Protocol, Port: p.Port})
	}
	return decision, path, err
}

// Follow follows a packet through the programmed state of the nodes.
func (w *World) Follow(p trace.Packet) (*trace.Path, error) { return trace.Follow(p, w.sites, w.Names) }

// FollowWanted follows a packet through the nodes' desired state under a backend.
func (w *World) FollowWanted(p trace.Packet, backend string) (*trace.Path, error) {
	var sites []*trace.Site
	for _, n := range w.Nodes {
		s, err := n.wanted(backend)
		if err != nil {
			return nil, err
		}
		sites = append(sites, s)
	}
	return trace.Follow(p, sites, w.Names)
}

// NodeOf returns the node of the pod that has the address, or "".
func (w *World) NodeOf(a netip.Addr) string {
	if p := w.PodAt(a); p != nil {
		return p.Spec.NodeName
	}
	return ""
}

// HostAt returns the node that has the address itself, or "".
func (w *World) HostAt(a netip.Addr) string {
	if n := w.oracle.NodeAt(a); n != nil {
		return n.Name
	}
	return ""
}

// HostWithPolicy returns the node that has the address, if a policy applies to the node itself, or "".
func (w *World) HostWithPolicy(a netip.Addr) string {
	if n := w.oracle.NodeAt(a); n != nil && w.oracle.HasHostPolicy(n) {
		return n.Name
	}
	return ""
}

// PodAt returns the pod that has the address, or nil.
func (w *World) PodAt(a netip.Addr) *corev1.Pod {
	for _, p := range w.Objects.Pods {
		for _, ip := range p.Status.PodIPs {
			if own, err := netip.ParseAddr(ip.IP); err == nil && own.Unmap() == a && !Over(p) && !p.Spec.HostNetwork {
				return p
			}
		}
	}
	return nil
}

// Because returns the known reason why the node differs from the policies, or "".
func (w *World) Because(p trace.Packet) string {
	for i, n := range w.Nodes {
		s := n.Status
		switch {
		case !s.InSync:
			return fmt.Sprintf("the agent of %s does not know everything yet", n.Name)
		case s.Programmed < s.Observed || i == 0 && w.Objects.Revision > s.Programmed:
			return fmt.Sprintf("changes wait to be programmed on %s (%d of %d): try again", n.Name, s.Programmed, s.Observed)
		case s.LastApply.Error != "":
			return fmt.Sprintf("the last apply on %s failed: %s", n.Name, s.LastApply.Error)
		case s.Hosts != nil && (s.Hosts.State == control.HostsOff || s.Hosts.State == control.HostsWithdrawn) && (n.Site.Own(p.Source) || n.Site.Own(p.Destination)):
			return fmt.Sprintf("the policies of the node %s itself are %s: felixctl status has the reason", n.Name, s.Hosts.State)
		}
		for _, e := range s.Endpoints {
			concerned := slices.ContainsFunc([]netip.Addr{p.Source, p.Destination}, func(a netip.Addr) bool { return slices.Contains(e.Addresses, a.String()) })
			if concerned && e.State != control.EndpointProgrammed {
				return fmt.Sprintf("pod %s/%s is %s on %s: %s", e.Namespace, e.Name, e.State, n.Name, e.Reason)
			}
		}
	}
	return ""
}
