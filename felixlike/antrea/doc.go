// Package antrea has the types of the kinds of Antrea's API, crd.antrea.io/v1beta1, that felixlike reads: Tier,
// ClusterNetworkPolicy, NetworkPolicy, ClusterGroup, Group, ExternalIPPool and Egress. OwnExternalIPPool and NodeEgress are the
// kinds ExternalIPPool and Egress of felixlike.io/v1alpha1. A NodeEgress has the fields of Antrea's and those with its nodes.
//
// The fields have the names of the API. Of features that felixlike does not support, only the
// name is known and not the content: such a field is kept as JSON, so that the policy engine can
// name and refuse it.
//
// It does no I/O and may not interpret policy. It is tested by tables.
package antrea
