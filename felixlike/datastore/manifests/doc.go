// Package manifests is the datastore of a node without Kubernetes: a watched
// directory of ordinary Kubernetes YAML and JSON (Node, Namespace, Pod,
// NetworkPolicy, ClusterNetworkPolicy, the kinds of Antrea's API; several documents a file; kind List).
//
// Guarantees:
//
//   - Decoding is strict. An object with an unknown field, a wrong type or a
//     wrong apiVersion is reported with file, object and field; all others
//     stay in force.
//   - Of an object with an error the last good version stays in force. If
//     there is none, a NetworkPolicy is closed (datastore.NetworkPolicyClosed),
//     a ClusterNetworkPolicy's parts that are not understood fail closed
//     (strict.ClosedSpec), and any other object is left out.
//   - A file that cannot be read in full (bad YAML, a document without kind or
//     name) or is empty deletes nothing: its former objects stay until the
//     file is whole again or removed. The same goes for the directory, which
//     may be absent at the start and may be removed and made again.
//   - The last good versions survive a restart: the agent's state directory has a copy of each file, for this
//     user alone. A copy is deleted with its file, and only after the directory could be read. Copies of
//     another directory are not used. A copy that cannot be written is a problem, and nothing waits for it.
//   - Of an object in two files the first file by name wins.
//   - Objects are defaulted as the API server does where policy depends on it:
//     namespace "default", protocol TCP, policyTypes, podIP and podIPs, podCIDR
//     and podCIDRs, the label kubernetes.io/metadata.name of namespaces.
//   - A namespace that pods or policies use but no file declares exists
//     nevertheless, with that label alone.
//
// Hidden files, other extensions and subdirectories are ignored. The package does not interpret objects. It
// is tested on real directories; its parser is fuzzed.
package manifests
