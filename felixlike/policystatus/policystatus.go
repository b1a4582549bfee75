package policystatus

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/felixlike/felixlike/felixlike/leases/elect"
)

// Rights returns the rights that Run needs for policies, in addition to the right to list and
// watch them. The ClusterRole in deploy/ grants them.
func Rights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha2.GroupName}, Resources: []string{"clusternetworkpolicies/status"}, Verbs: []string{"patch"}},
	}
}

// LeaseName is the name of the Lease; its holder writes.
const LeaseName = "felixlike-clusternetworkpolicies"

// effect is that of a failure.
const effect = "policy is in force without it"

// LeaseRights returns the rights that Run needs in the agents' namespace. The Role in deploy/
// grants them.
func LeaseRights() []rbacv1.PolicyRule {
	leases := []string{"leases"}
	return []rbacv1.PolicyRule{
		{APIGroups: []string{coordinationv1.GroupName}, Resources: leases, ResourceNames: []string{LeaseName}, Verbs: []string{"get", "update"}},
		// A name cannot restrict create.
		{APIGroups: []string{coordinationv1.GroupName}, Resources: leases, Verbs: []string{"create"}},
	}
}

// Run is a candidate for the Lease, and writes the conditions while it holds it, until
// ctx ends. It returns nil: nothing of it ends an agent.
func Run(ctx context.Context, o Options) error {
	return elect.Run(ctx, elect.Options{
		Client: o.Client, Node: o.Node, Namespace: o.Namespace, Lease: LeaseName, Nodes: o.Nodes, Needed: o.Needed, Log: o.Log,
		Timing: elect.Timing{Lease: o.Timing.Lease, Poll: o.Timing.Poll, PerNode: o.Timing.PerNode, Needed: o.Timing.Needed},
		Job:    "writer of policy status", Does: "writes the status of ClusterNetworkPolicies", Effect: effect,
		Work: func(ctx context.Context) { newWriter(o).run(ctx) },
	})
}
