package preview

import (
	"context"
	"slices"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy"
)

// Preview is the effect of a change.
type Preview struct {
	// Node is the node of the agent that gave the objects.
	Node     string         `json:"node"`
	Policies []PolicyChange `json:"policies"`
	// Verdicts are for the whole cluster.
	Verdicts []Difference `json:"verdicts"`
	// StillDenied are packets that a rule of the change allows at one end, and the other end denies as before.
	StillDenied []Difference `json:"stillDenied,omitempty"`
	// OfNodes are packets to and from nodes themselves about which the policies of the node decide otherwise. Becomes may be KeptOpen.
	OfNodes []Difference `json:"verdictsOfNodes,omitempty"`
	// Sockets has the sockets of this node that would be closed, or have connections that could not begin again.
	Sockets []SocketChange `json:"sockets,omitempty"`
	// Services has the addresses of Services about which policies before DNAT decide otherwise. NoServices reports that the change concerns such policies,
	// and that no Services are known: it is not known whether verdicts change.
	Services   []ServiceChange `json:"services,omitempty"`
	NoServices bool            `json:"noServices,omitempty"`
	// Looked reports whether established connections were checked, and Outlived
	// are those of the node that the new policies deny.
	Looked   bool       `json:"connectionsLookedAt"`
	Outlived []Outlived `json:"outlivedConnections,omitempty"`
	// Programmed are the additions to, and removals from, the node's state
	// of the Backend.
	Backend string `json:"backend,omitempty"`
	// Warnings say which pods of the node the Backend would close though others serve them.
	Warnings   []string    `json:"warnings,omitempty"`
	Programmed nodeObjects `json:"programmed,omitempty"`
}

// Changes reports whether a packet would get another verdict, or would without the failsafe ports, or whether that is not known.
func (p *Preview) Changes() bool {
	return p.NoServices || len(p.Verdicts)+len(p.OfNodes)+len(p.Services) > 0
}

// Of computes the effects of a change on the cluster of the objects. If ctx ends before, Of
// returns its error.
func Of(ctx context.Context, o control.Objects, c Change) (*Preview, error) {
	before := policiesOf(o)
	after, changes, err := c.apply(o)
	if err != nil {
		return nil, err
	}
	p := &Preview{Node: o.Node, Policies: changes}
	e := engineOf(o, before)
	var changed []anyPolicy
	tierOrGroup, tenant := false, false
	for i := range p.Policies {
		one := &p.Policies[i]
		one.describe(o, e)
		for _, version := range []anyPolicy{one.before, one.after} {
			if !version.none() && version.isPolicy() && one.What != Same {
				changed = append(changed, version)
				tenant = tenant || isNetNamespace(version.antrea) || isEgressPolicy(version.antrea)
			}
		}
		if !one.after.none() && !one.after.isPolicy() && one.What != Same {
			tierOrGroup = true
		}
	}
	// Any policy of Antrea's API may refer to a changed tier or group, and EgressNetworkPolicies may be in conflict.
	for _, p := range slices.Concat(before, after) {
		if tierOrGroup && p.antrea != nil || tenant && p.projects != nil {
			changed = append(changed, p)
		}
	}
	all, err := differences(ctx, o, before, after, changed)
	for _, d := range all {
		if d.still {
			p.StillDenied = append(p.StillDenied, d)
		} else {
			p.Verdicts = append(p.Verdicts, d)
		}
	}
	return p, err
}

// engineOf returns an engine that knows the objects, with other policies.
func engineOf(o control.Objects, policies []anyPolicy) *policy.Engine {
	e := policy.New(o.Node)
	e.SetIsolation(o.Antrea.Isolation)
	for _, n := range o.Nodes {
		e.SetNode(n)
	}
	for _, n := range o.Namespaces {
		e.SetNamespace(n)
	}
	for _, p := range policies {
		if p.antrea != nil {
			p.setAntrea(e)
		} else {
			p.set(e)
		}
	}
	for _, p := range o.Pods {
		e.SetPod(p)
	}
	return e
}

// Outlived is an established connection that the new policies deny. It continues until it
// ends.
type Outlived struct {
	control.Connection
	// From and To name its ends.
	From string `json:"from"`
	To   string `json:"to"`
	// Because names the policies that deny it.
	Because string `json:"because"`
}
