// Package hostnet programs the host's side of the gateway port: its link,
// addresses and sysctls, the routes and neighbours that lead to the peers'
// pods, and the policy rule that keeps traffic between pods and peer nodes
// inside the tunnel.
//
// It notices at once when another program changes any of it (Watch), so that the next
// Apply repairs it, and tells if that does not help (Problem).
//
// It also reports the addresses of the node itself (WatchAddresses), and deletes the
// connections of addresses that changed hands (Conntrack).
//
// It is a reconciler: it reads the observed state, writes only differences, and
// removes leftovers of an earlier run. Its routes carry a protocol number of
// their own and its policy rule a priority and table of its own, so that
// nothing of others is ever touched. It works in the network namespace of the
// calling process, over netlink, and knows nothing of policy. It is tested in
// fresh network namespaces.
package hostnet
