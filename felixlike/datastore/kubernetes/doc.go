// Package kubernetes is the datastore of a cluster: nodes, namespaces, pods,
// NetworkPolicies and ServiceCIDRs of an API server, read only.
//
//	API server -> reflector -> item -> store: is it new? -> pending -> Run: batch -> deliver
//	 list, watch   client-go    trimmed,   hash and version   one place     decoded, sorted
//	                            as bytes   of each object     for all kinds
//
// What it promises:
//
//   - It delivers what policy and forwarding can notice, and nothing else: an
//     object is trimmed to what they read before it is kept or compared, so
//     heartbeats and status changes stop here. Of an object that was delivered a
//     hash and a version stay, no more.
//   - Pods that are done are not asked for. Those that are being deleted count
//     until they are gone.
//   - NetworkPolicies are decoded strictly: a spec with a field that this agent
//     does not know closes the policy (datastore.NetworkPolicyClosed) and is a
//     problem with object, field and reason. It does so whatever the policy was
//     before, so all nodes, and an agent that starts anew, do the same.
//   - Nothing is in sync before everything has been listed, with reads that are
//     as new as the API server: an agent that restarts does not go back in time.
//   - An API server that is away, restarts or forgets where a watch was changes
//     nothing: what is known stays, and after that a whole new list is compared
//     with it, in one batch. Only such a list deletes what is not in it.
//   - ServiceCIDRs are left out where the API server has no such kind, or lets
//     everything else be read.
//
// Recorder tells users of problems, as Events. Rules lists the rights that all
// of this takes.
//
// What an object means is not judged here. The package is tested by
// kubernetestest: against an API server of its own, which can fail in every way,
// and, the same suite, against a real one (test/cluster).
package kubernetes
