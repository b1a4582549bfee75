// Package hostnet programs the host's side of the gateway port: its link,
// addresses and sysctls, the routes and neighbours that lead to this node's and the peers'
// pods, and the policy rule that keeps traffic between pods and peer nodes
// inside the tunnel, or inside the WireGuard device (ovsfwd/wireguard). With State.Away a second rule
// leads marked packets of pods back to the gateway port.
//
// Watch notices foreign changes at once, so that the next Apply repairs them. Problem reports
// changes that no Apply could repair for some time.
//
// Hops finds the neighbours by which this node's packets to peers leave.
//
// It also reports the addresses of the node itself (WatchAddresses), and deletes the
// connections of addresses that changed hands (Conntrack).
//
// It is a reconciler: it reads the observed state, writes only differences, and
// removes leftovers of an earlier run. Its routes have a protocol number that no other
// program uses, and its policy rules have separate priorities and tables, so it never changes
// objects of other programs. It works in the network namespace of the calling process, over
// netlink, and knows nothing of policy. It is tested in fresh network namespaces.
package hostnet
