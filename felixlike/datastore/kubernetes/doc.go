// Package kubernetes is the datastore of a cluster: nodes, namespaces, pods,
// NetworkPolicies, ClusterNetworkPolicies, Antrea's policy kinds and ServiceCIDRs of an API
// server, read only.
//
//	API server -> reflector -> item -> store: is it new? -> pending -> Run: batch -> deliver
//	 list, watch   client-go    trimmed,   hash and version   one place     decoded, sorted
//	                            as bytes   of each object     for all kinds
//
// Guarantees:
//
//   - It delivers only changes that affect policy or forwarding: an object is trimmed
//     to the fields that these read before it is kept or compared, so heartbeats and
//     status changes stop here. Of a delivered object, only a hash and a version stay.
//   - Finished pods are not requested. Terminating pods count until they are deleted.
//   - NetworkPolicies are decoded strictly: a spec with a field that this agent
//     does not know closes the policy (datastore.NetworkPolicyClosed) and is a
//     problem with object, field and reason. The old version of the policy does not
//     matter, so all nodes, and a restarted agent, do the same.
//   - Nothing is in sync before everything has been listed, with reads that are
//     as new as the API server: an agent that restarts does not go back in time.
//   - While the API server is away, restarts or forgets the version of a watch, the
//     known objects stay. The next complete list is compared with them in one batch.
//     Only such a list deletes the objects that it lacks.
//   - ClusterNetworkPolicies are decoded strictly, too. A rule that cannot be understood
//     is a problem, and is left empty, so that it fails closed (strict.ClosedSpec). The same
//     applies to the objects of Antrea's API (strict.DecodeAntrea).
//   - A cluster without ClusterNetworkPolicies, or without some of Antrea's kinds, is in sync
//     without them. The source asks again every minute, with one request for all absent
//     kinds of a group (offer.go), and at a Sync. They are gone when four lists in a row say
//     that there is no such kind; any other failure leaves them in force.
//   - ServiceCIDRs are left out where the API server has no such kind, or lets
//     everything else be read.
//
// RecordEvents reports problems to users, as Events. Rules lists the rights that all
// of this takes.
//
// The package does not interpret objects. The package is tested by
// kubernetestest: against an API server of its own, which can fail in every way,
// and, the same suite, against a real one (test/cluster).
//
// # Memory and cost
//
// Trimming keeps the fields that policy and forwarding read
// (TestTrimmedObjectsMeanTheSame). Protobuf is decoded into these fields only
// (wanted.go): the 2.3 kB of managed fields in a pod's 3.3 kB are skipped as bytes.
// Objects of the first list are delivered while it is read, no faster than the driver
// takes them; the list holds only names, versions and hashes. Later lists are compared
// as a whole. Lists come as streams (Kubernetes 1.34 and later) or in pages of 500. A
// delivered pod takes 0.1 kB here; in the driver's copy, pods of one workload share
// labels and ports.
//
// An agent with nftables at 100,000 pods, 909 nodes and 1,000 policies (337 MB on the
// wire, TLS and HTTP/2) needs for a start, until everything is programmed, on a busy
// machine:
//
//	                      CPU-s          peak RSS       live heap
//	GOGC=100              5.1 (stream)   261 MB         78 MB
//	75, the agent's own   6.8, 5.7       239, 240 MB    79 MB
//
// Measured by "go test ./test/scale -run xxx -bench Agent/pods=100000 -benchtime 1x".
// TestSmall there holds 10,000 pods to bounds (0.5 CPU-s, 74 MB).
//
// # The connection
//
//   - Rights lists all that the package asks for: list and watch of the objects, create
//     and patch of Events (TestRights compares it with the ClusterRole).
//   - Reconnect: an agent that moves its uplink ends its connections, mostly within a
//     second of being in sync. After a watch that ends so soon without events, client-go
//     reads everything again. So such a watch ends with a bookmark
//     (TestReconnectReadsNothingTwice).
//   - Versions: a list deletes the objects that are not in it when it is whole
//     (TestCutList), in one batch.
//   - Outage: status names the kinds that cannot be read, and the reason. The next try
//     comes after 0.2 s, later at most every 16 s. All changes of the outage come as one
//     batch a kind (TestOutage, TestRestart, TestForgottenVersions).
//   - Dead connections are noticed within 3 to 15 s, by TCP keepalives: an uplink that
//     moves to a userspace bridge takes the masqueraded connection to the API server's
//     Service with it, and an agent only listens (TestMovedAddress).
//   - Policies are decoded from JSON, since protobuf drops unknown fields
//     (TestPoliciesOfNewerServers). Metadata and status are not checked.
//   - Sync (felixctl, tests) lists names and versions and waits until the stores have
//     them. The version of a list alone would not do: it is that of the whole cluster,
//     and a watch of a quiet kind gets it a minute later.
//   - ServiceCIDRs become model.ServiceCIDRsUpdate. The managers of every backend add
//     the prefixes of the setting serviceCIDRs. openflow needs them to lead packets to
//     Services; the netfilter backends drop packets to Service addresses that no proxy
//     rewrites. API servers before 1.33 have no ServiceCIDRs.
//   - Events report problems that last more than five seconds, at the object
//     (recorder.go). The name of an Event is a hash of the problem. A problem that all
//     nodes see has one name: three nodes by rank report it, each 20 s after the one
//     before, and the API server keeps one. A node reports its own problems itself, with
//     the node as "related". An Event is repeated every half hour while the problem
//     lasts, and no agent writes more than one a second.
package kubernetes
