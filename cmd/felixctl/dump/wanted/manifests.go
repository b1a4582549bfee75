package wanted

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/manifests"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

// FromManifests returns the model that a node's agent would compute from a folder
// of manifests. What these do not say (settings, own addresses, interfaces of pods)
// is taken from like, a model of the node, where there is one. It also returns what
// is wrong with the objects.
func FromManifests(ctx context.Context, dir, node string, like *control.Model) (*control.Model, []model.Problem, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, nil, errors.Join(fmt.Errorf("%s is no folder of manifests", dir), err)
	}
	batch, err := firstBatch(ctx, dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read the manifests in %s: %w", dir, err)
	}
	m, problems, err := FromEvents(batch.Events, node, like)
	if err != nil {
		err = fmt.Errorf("the manifests in %s: %w", dir, err)
	}
	return m, append(batch.Problems, problems...), err
}

// FromEvents returns the model that a node's agent would compute from objects, as
// FromManifests does.
func FromEvents(events []datastore.Event, node string, like *control.Model) (*control.Model, []model.Problem, error) {
	e := policy.New(node)
	if like != nil {
		e.SetIsolation(like.Settings.Isolation)
		e.SetServiceCIDRs(slices.Concat(like.Settings.ServiceCIDRs, like.ServiceCIDRs))
	}
	var problems []model.Problem
	for _, event := range events {
		problems = append(problems, set(e, event)...)
	}
	e.Flush()
	problems = slices.Concat(problems, e.NodeProblems(), e.AntreaProblems())
	m := &control.Model{Node: node}
	if like != nil {
		m.Backend, m.Settings, m.HostAddresses, m.ServiceCIDRs = like.Backend, like.Settings, like.HostAddresses, like.ServiceCIDRs
		m.Subnets = like.Subnets
		m.LogsReported = like.LogsReported
		m.ServicePorts, m.ServicesKnown = like.ServicePorts, like.ServicesKnown
	}
	for _, u := range e.Snapshot() {
		m.Add(u)
	}
	if !slices.ContainsFunc(m.Nodes, func(n *model.Node) bool { return n.Name == node }) {
		return nil, problems, fmt.Errorf("there is no node %s with addresses", node)
	}
	addresses := e.PodAddresses()
	for id, all := range addresses {
		m.Pods = append(m.Pods, control.Pod{ID: id, Addresses: all})
	}
	slices.SortFunc(m.Pods, func(a, b control.Pod) int { return a.ID.Compare(b.ID) })
	m.Attachments = attachments(m, addresses, like)
	return m, problems, nil
}

// Events returns objects that an agent serves as a datastore delivers them.
func Events(o control.Objects) []datastore.Event {
	var all []datastore.Event
	for _, n := range o.Nodes {
		all = append(all, datastore.NodeSet{Node: n})
	}
	for _, n := range o.Namespaces {
		all = append(all, datastore.NamespaceSet{Namespace: n})
	}
	for _, p := range o.Pods {
		all = append(all, datastore.PodSet{Pod: p})
	}
	for _, p := range o.Policies {
		all = append(all, datastore.NetworkPolicySet{Policy: p})
	}
	for _, p := range o.ClusterPolicies {
		all = append(all, datastore.ClusterNetworkPolicySet{Policy: p})
	}
	for _, o := range o.Antrea.All() {
		all = append(all, datastore.AntreaSet{Object: o})
	}
	return all
}

// firstBatch reads the folder once.
func firstBatch(ctx context.Context, dir string) (datastore.Batch, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var first *datastore.Batch
	err := manifests.New(manifests.Options{Dir: dir, Log: slog.New(slog.DiscardHandler)}).Run(ctx, func(b datastore.Batch) {
		if first == nil {
			first = &b
		}
		if b.InSync {
			cancel()
		}
	})
	if first == nil {
		return datastore.Batch{}, errors.Join(errors.New("nothing was read"), err)
	}
	return *first, nil
}

func set(e *policy.Engine, event datastore.Event) []model.Problem {
	switch o := event.(type) {
	case datastore.NodeSet:
		return e.SetNode(o.Node)
	case datastore.NamespaceSet:
		e.SetNamespace(o.Namespace)
	case datastore.PodSet:
		return e.SetPod(o.Pod)
	case datastore.NetworkPolicySet:
		return e.SetNetworkPolicy(o.Policy)
	case datastore.NetworkPolicyClosed:
		e.SetClosedNetworkPolicy(o.Namespace, o.Name, o.PodSelector)
	case datastore.ClusterNetworkPolicySet:
		return e.SetClusterNetworkPolicy(o.Policy)
	case datastore.AntreaSet:
		e.SetAntrea(o.Object)
	}
	return nil
}

// attachments are those of the model that is like this one, and for pods that it
// does not have, made up.
func attachments(m *control.Model, addresses map[model.PodID][]netip.Addr, like *control.Model) []control.Attachment {
	known := map[model.PodID]control.Attachment{}
	next := uint32(1000)
	if like != nil {
		for _, a := range like.Attachments {
			known[a.Pod] = a
		}
	}
	var all []control.Attachment
	for _, e := range m.Endpoints {
		a, ok := known[e.ID]
		if !ok {
			next++
			a = control.Attachment{
				Pod: e.ID, Interface: fmt.Sprintf("%s%d", model.PodInterfacePrefix, next), OFPort: next, MAC: ovsdb.GatewayMAC(e.ID.String()).String(),
			}
		}
		a.Addresses = addresses[e.ID]
		if len(a.Addresses) > 0 {
			all = append(all, a)
		}
	}
	return all
}
