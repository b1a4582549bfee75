// Package cluster has what the agent knows of the cluster and of its own node: the objects of the datastore, the model that the policy engine
// makes of them, the problems of objects, and whether the first listings are complete. It belongs to the loop of felixlike/driver, which
// hands it batches and attachments, and takes updates. It programs nothing.
package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
)

// Config is what a Cluster is told at its start.
type Config struct {
	// Node is this node's name.
	Node string
	// ServiceCIDRs are the prefixes of Service addresses in the settings.
	ServiceCIDRs []netip.Prefix
	// Isolation isolates namespaces.
	Isolation bool
}

// Cluster has the agent's knowledge of the cluster and its own node: objects, the model
// made from them, and whether the first listings are complete.
type Cluster struct {
	cfg Config

	engine   *policy.Engine
	model    *Model
	problems *problems
	// policies are the NetworkPolicies of the datastore, with their source.
	policies map[model.ObjectRef]string
	// antreaSources are the sources of the objects of Antrea's API, nodeSources those of nodes by name.
	antreaSources map[model.ObjectRef]string
	nodeSources   map[string]string
	objects       *objects
	// portless has the addresses of the pods that have lost their port, and no other pod has got since.
	portless map[model.PodID][]netip.Addr
	// needs lists what modules miss.
	needs func() []string
	// uids are the UIDs of this node's pods. recreated are the pods that got another one in this batch of the datastore.
	uids      uids
	recreated []model.PodID
	// observed is the newest revision of the datastore.
	observed uint64

	sourceSynced, attachmentsSynced bool
	// nodeLost is set while this node's object, once known, is missing in the datastore.
	nodeLost bool
	// unread are the files of the datastore that could never be read in full, outdated counts those with a former
	// version in force.
	unread   []string
	outdated int
}

// New returns a Cluster without objects. needs lists what else the first apply needs, and does not have.
func New(cfg Config, needs func() []string) *Cluster {
	c := &Cluster{
		cfg: cfg, needs: needs, engine: policy.New(cfg.Node), model: NewModel(), problems: newProblems(),
		policies: map[model.ObjectRef]string{}, antreaSources: map[model.ObjectRef]string{}, nodeSources: map[string]string{}, objects: newObjects(),
		portless: map[model.PodID][]netip.Addr{}, uids: uids{},
	}
	c.engine.SetServiceCIDRs(cfg.ServiceCIDRs)
	c.engine.SetIsolation(cfg.Isolation)
	return c
}

// Node returns the name of this node.
func (c *Cluster) Node() string { return c.cfg.Node }

// Engine returns the policy engine.
func (c *Cluster) Engine() *policy.Engine { return c.engine }

// Model returns the model that is made from the objects.
func (c *Cluster) Model() *Model { return c.model }

// Observed returns the newest revision of the datastore.
func (c *Cluster) Observed() uint64 { return c.observed }

// SourceSynced reports whether the first listing of the datastore is complete.
func (c *Cluster) SourceSynced() bool { return c.sourceSynced }

// AttachmentsSynced says that the attachments of all pods are known.
func (c *Cluster) AttachmentsSynced() { c.attachmentsSynced = true }

// attach gives the engine the addresses of an attachment. A pod without a port that has one of them was detached.
func (c *Cluster) attach(a *model.Attachment) {
	delete(c.portless, a.Pod)
	for id, addresses := range c.portless {
		if slices.ContainsFunc(addresses, func(addr netip.Addr) bool { return slices.Contains(a.Addresses, addr) }) {
			c.clear(id)
		}
	}
	c.engine.SetLocalAddresses(a.Pod, a.Addresses)
}

// detach takes the removal of an attachment, unless the pod has a later one.
func (c *Cluster) detach(u model.AttachmentRemove) {
	a := c.model.Attachments[u.Pod]
	switch {
	case a != nil && a.Interface != u.Interface:
	case !u.PortOnly:
		c.clear(u.Pod)
	case a != nil:
		c.portless[u.Pod] = a.Addresses
	}
}

func (c *Cluster) clear(id model.PodID) {
	delete(c.portless, id)
	c.engine.SetLocalAddresses(id, nil)
}

// Served returns the objects for tools that judge packets by them. Pods have the addresses by which policy is in force, not those of
// their status: on this node, attachments decide.
func (c *Cluster) Served() control.Objects {
	out, addresses := c.objects.all(), c.engine.PodAddresses()
	out.Node, out.InSync, out.Revision = c.cfg.Node, c.sourceSynced, c.observed
	out.Antrea.Isolation = c.cfg.Isolation
	for _, p := range out.Pods {
		if p.Spec.HostNetwork {
			continue
		}
		p.Status.PodIPs = nil
		for _, a := range addresses[model.PodID{Namespace: p.Namespace, Name: p.Name}] {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.String()})
		}
	}
	return out
}

// InSync reports whether all first listings are complete. Before that, nothing is
// programmed: objects of unknown pods would be removed, and their traffic left open.
func (c *Cluster) InSync() bool {
	return c.sourceSynced && c.attachmentsSynced && c.model.Nodes[c.cfg.Node] != nil && len(c.needs()) == 0
}

// Unknown lists the inputs that are missing and that the first apply needs.
func (c *Cluster) Unknown() []string {
	var missing []string
	if !c.sourceSynced {
		missing = append(missing, "the datastore's first listing is not complete")
	}
	if !c.attachmentsSynced {
		missing = append(missing, "the attachments of the pods are not known")
	}
	missing = append(missing, c.needs()...)
	if c.sourceSynced && c.model.Nodes[c.cfg.Node] == nil {
		missing = append(missing, "node "+c.cfg.Node+" is not in the datastore")
	}
	return missing
}

// Files counts the files of the datastore that could never be read in full, and those with a former version in force.
func (c *Cluster) Files() (unread, outdated int) { return len(c.unread), c.outdated }

// UnreadFiles returns why the policies of this node are not all known, or "".
func (c *Cluster) UnreadFiles() string {
	switch n := len(c.unread); n {
	case 0:
		return ""
	case 1:
		return "manifest " + c.unread[0] + " could never be read in full: policies in it are not in force"
	default:
		return fmt.Sprintf("manifest %s and %d more could never be read in full: policies in them are not in force", c.unread[0], n-1)
	}
}

// Unseen returns the first input about a new pod that is still missing, or "". With large, waiting is a policy that waits and may select the pod.
func (c *Cluster) Unseen(want *model.Attachment, uid string, waiting model.ObjectRef, large bool) string {
	have := c.model.Attachments[want.Pod]
	switch unknown := c.Unknown(); {
	case len(unknown) > 0:
		return strings.Join(unknown, "; ")
	case have == nil || have.Interface != want.Interface || have.Sandbox != want.Sandbox || have.OFPort != want.OFPort || have.Bridge != want.Bridge ||
		!slices.Equal(have.Addresses, want.Addresses):
		return "the records of attached pods do not have interface " + want.Interface + " yet"
	case c.engine.AwaitsNamespace(want.Pod.Namespace):
		return "the datastore has not reported namespace " + want.Pod.Namespace + ", which ClusterNetworkPolicies or Egresses may select, or which is isolated"
	case large:
		return waiting.String() + " is large and waits for its turn, and may select the pod"
	case !c.uids.are(want.Pod, uid):
		return "the datastore has another pod of this name: UID " + strings.Join(c.uids[want.Pod], ", ") + ", not " + uid
	}
	return ""
}
