package driver

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

// cluster has the agent's knowledge of the cluster and its own node: objects, the model
// made from them, and whether the first listings are complete. It belongs to the loop.
type cluster struct {
	// node is this node's name.
	node string
	// policyOnly is Config.PolicyOnly.
	policyOnly bool

	engine   *policy.Engine
	model    *Model
	problems *problems
	// policies are the NetworkPolicies of the datastore, with their source.
	policies map[model.ObjectRef]string
	// antreaSources are the sources of the objects of Antrea's API, nodeSources those of nodes by name.
	antreaSources map[model.ObjectRef]string
	nodeSources   map[string]string
	// services is Config.ServiceCIDRs.
	services []netip.Prefix
	objects  *objects
	// portless has the addresses of the pods that have lost their port, and no other pod has got since.
	portless map[model.PodID][]netip.Addr
	modules  modules
	// uids are the UIDs of this node's pods.
	uids uids
	// tiered are the large policies of tiers that wait for their turn.
	tiered *tieredTurns
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

func newCluster(node string) *cluster {
	return &cluster{
		node: node, engine: policy.New(node), model: newModel(node), problems: newProblems(),
		policies: map[model.ObjectRef]string{}, antreaSources: map[model.ObjectRef]string{}, nodeSources: map[string]string{}, objects: newObjects(),
		portless: map[model.PodID][]netip.Addr{}, uids: uids{},
	}
}

// attach gives the engine the addresses of an attachment. A pod without a port that has one of them was detached.
func (c *cluster) attach(a *model.Attachment) {
	delete(c.portless, a.Pod)
	for id, addresses := range c.portless {
		if slices.ContainsFunc(addresses, func(addr netip.Addr) bool { return slices.Contains(a.Addresses, addr) }) {
			c.clear(id)
		}
	}
	c.engine.SetLocalAddresses(a.Pod, a.Addresses)
}

// detach takes the removal of an attachment, unless the pod has a later one.
func (c *cluster) detach(u model.AttachmentRemove) {
	a := c.model.Attachments[u.Pod]
	switch {
	case a != nil && a.Interface != u.Interface:
	case !u.PortOnly:
		c.clear(u.Pod)
	case a != nil:
		c.portless[u.Pod] = a.Addresses
	}
}

func (c *cluster) clear(id model.PodID) {
	delete(c.portless, id)
	c.engine.SetLocalAddresses(id, nil)
}

// served returns the objects for tools that judge packets by them. Pods have the addresses by which policy is in force, not those of
// their status: on this node, attachments decide.
func (c *cluster) served() control.Objects {
	out, addresses := c.objects.all(), c.engine.PodAddresses()
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

// inSync reports whether all first listings are complete. Before that, nothing is
// programmed: objects of unknown pods would be removed, and their traffic left open.
func (c *cluster) inSync() bool {
	return c.sourceSynced && c.attachmentsSynced && c.model.Nodes[c.node] != nil && len(c.modules.needs()) == 0
}

// unknown lists the inputs that are missing and that the first apply needs.
func (c *cluster) unknown() []string {
	var missing []string
	if !c.sourceSynced {
		missing = append(missing, "the datastore's first listing is not complete")
	}
	if !c.attachmentsSynced {
		missing = append(missing, "the attachments of the pods are not known")
	}
	missing = append(missing, c.modules.needs()...)
	if c.sourceSynced && c.model.Nodes[c.node] == nil {
		missing = append(missing, "node "+c.node+" is not in the datastore")
	}
	return missing
}

// unreadFiles returns why the policies of this node are not all known, or "".
func (c *cluster) unreadFiles() string {
	switch n := len(c.unread); n {
	case 0:
		return ""
	case 1:
		return "manifest " + c.unread[0] + " could never be read in full: policies in it are not in force"
	default:
		return fmt.Sprintf("manifest %s and %d more could never be read in full: policies in them are not in force", c.unread[0], n-1)
	}
}

// unseen returns the first input about a new pod that is still missing, or "". Policies count that the datastore had at the revision.
func (c *cluster) unseen(want *model.Attachment, uid string, revision uint64) string {
	have := c.model.Attachments[want.Pod]
	waiting, large := c.tiered.before(revision, want.Pod.Namespace)
	switch unknown := c.unknown(); {
	case len(unknown) > 0:
		return strings.Join(unknown, "; ")
	case have == nil || have.Interface != want.Interface || have.Sandbox != want.Sandbox || have.OFPort != want.OFPort || have.Bridge != want.Bridge ||
		!slices.Equal(have.Addresses, want.Addresses):
		return "the records of attached pods do not have interface " + want.Interface + " yet"
	case c.engine.AwaitsNamespace(want.Pod.Namespace):
		return "the datastore has not reported namespace " + want.Pod.Namespace + ", which ClusterNetworkPolicies or Egresses may select"
	case large:
		return waiting.String() + " is large and waits for its turn, and may select the pod"
	case !c.uids.are(want.Pod, uid):
		return "the datastore has another pod of this name: UID " + strings.Join(c.uids[want.Pod], ", ") + ", not " + uid
	}
	return ""
}

// ownNodeProblems reports a missing object of this node, with the effect.
func (c *cluster) ownNodeProblems() []model.Problem {
	reason := ""
	switch {
	case c.nodeLost:
		reason = "this node is not in the datastore any more: its last known object stays in force"
	case c.sourceSynced && c.model.Nodes[c.node] == nil:
		reason = "this node is not in the datastore: nothing is programmed until it is"
	default:
		return nil
	}
	return []model.Problem{{Object: model.NodeRef(c.node), Reason: reason}}
}

// hostNetworkProblems reports the policies that select hostNetwork pods. No policy applies
// to these pods, and users often expect one to.
func (c *cluster) hostNetworkProblems() []model.Problem {
	var found []model.Problem
	for r, source := range c.policies {
		for _, pod := range c.engine.HostNetworkTargets(r.Namespace, r.Name) {
			found = append(found, model.Problem{
				Source: source, Object: r, Field: "spec.podSelector",
				Reason: "matches pod " + pod.String() + ", which is on the host's network: no policy applies to it",
			})
		}
	}
	return found
}

// portProblems reports the named ports of policies that no pod declares.
func (c *cluster) portProblems() []model.Problem {
	const matchNothing = "they match nothing by it, also if they deny"
	var found []model.Problem
	report := func(r model.ObjectRef, source string, ports []string, effect string) {
		for _, port := range ports {
			found = append(found, model.Problem{
				Source: source, Object: r, Field: "spec",
				Reason: "no pod that the rules with the named port " + port + " are about declares it: " + effect,
			})
		}
	}
	for r, source := range c.policies {
		if r.Kind == "ClusterNetworkPolicy" {
			report(r, source, c.engine.UnresolvedPorts().OfCluster(r.Name), matchNothing)
		} else {
			report(r, source, c.engine.UnresolvedPorts().OfNetwork(r.Namespace, r.Name), "they allow nothing to it")
		}
	}
	for id := range c.objects.antrea {
		report(id.Ref(), c.antreaSources[id.Ref()], c.engine.UnresolvedPorts().OfAntrea(id), matchNothing)
	}
	return found
}

// peerProblems reports the peer nodes that no tunnel can reach.
func (c *cluster) peerProblems() []model.Problem {
	var found []model.Problem
	self := c.model.Nodes[c.node]
	if c.policyOnly || self == nil {
		return nil
	}
	for name, n := range c.model.Nodes {
		if name == c.node || self.OuterOf(n).IsValid() {
			continue
		}
		reason := "no InternalIP, which the tunnel needs: its pods cannot be reached"
		if its := n.Outer(); its.IsValid() {
			reason = fmt.Sprintf("there is no tunnel to %s, which is of another family than this node's end: its pods cannot be reached. The end of a node is its IPv4 InternalIP, or the IPv6 one if it has no other", its)
		}
		found = append(found, model.Problem{Object: model.NodeRef(name), Field: "status.addresses", Reason: reason})
	}
	return found
}
