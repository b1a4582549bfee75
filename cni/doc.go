// Package cni attaches pods to the node's bridge: it makes the veth pair, sets
// the pod's addresses and routes, and registers the host side in OVSDB, where
// the agent finds it. The CNI plugin and the lab use the same code.
//
// The CNI server also restores a pod's port that another program removed from the bridge
// (ports).
//
// It works in the network namespace of the calling thread (the node's) and in
// the one that the Spec names (the pod's), and nowhere else. It knows nothing
// of policy: a pod that is attached stays closed until the agent programs it.
// It is tested on real namespaces with a private Open vSwitch.
//
// # ADD
//
//	runtime -> felixlike-cni -> <runDir>/cni.sock (0600, HTTP and JSON, cni/protocol) -> the agent
//	  1. this node is known and has a bridge                     else code 11, after 10 s
//	  2. host-local reserves an address of each podCIDR          (the gateway port has the first)
//	  3. veth, single addresses, the gateway as the only neighbour, default routes, port on the bridge, with pod, sandbox and
//	     interface in external_ids
//	  4. the driver sees this port, the datastore knows the pod, its policy is in force
//	                                                             else all is undone, code 11
//	  5. the result, in the version of the request
//
// ADD answers in step 5, so a pod is isolated before its first instruction. If it
// gives up, the error names the missing condition ("policy of pod x/a is not in force:
// the datastore knows no such pod on this node"). A pod that a quarantined object closes
// is refused at once. felixlike_cni_wait_seconds is the time of step 4.
//
//   - Recreated pods: a new pod with the same name has another sandbox and another
//     UID. ADD waits for the port of the new sandbox and for the object with the
//     UID that the kubelet gave the runtime, so old labels never count for a new pod.
//     The connections of a new sandbox's address are deleted, as for a new pod.
//   - DEL needs no node, no namespace and no working driver. It removes only objects
//     with its container id (in the alias of the interface, or in OVSDB). host-local
//     releases addresses by container id, so a late DEL does not affect the address's new
//     owner. The address is released after the port is gone.
//   - Names that collide: the name of a pod's interface has 32 bits of hash, its MAC
//     address 46, and a tenant can search for a collision. The first pod keeps its name
//     and address. The later pod gets the next free ones of its own sequence. No pod
//     gets the MAC address of a gateway. OVSDB records both, so a restart keeps them;
//     DEL, CHECK and GC use the record of the sandbox. ADD claims them under one lock,
//     so two pods that are added at once get different ones (TestCrowd, with hashes of
//     one bit).
//   - Reused interface names: when ovs-vswitchd closes an interface, it restores the
//     interface's flags by name, and so sets a new interface of that name down. ADD
//     makes an interface only after the switch has processed the removal
//     (ovsdb.Client.ClearPort).
//   - Crash: OVSDB and the kernel hold the state, and files hold a copy of the records. At
//     its start the server removes ports without an interface (the node was restarted). It
//     releases addresses of sandboxes with neither port nor interface (killed while adding). An interface
//     without a port keeps its address until its sandbox goes.
//   - GC removes ports, interfaces and reservations of sandboxes that are not listed; a
//     configuration without the list is refused. STATUS fails with code 50 unless ADD
//     would succeed. The configuration names the versions 1.0.0 and 1.1.0: a runtime
//     that knows 1.1.0 may ask for both verbs, an older one goes on with 1.0.0. CHECK
//     looks at both ends, addresses, routes, neighbours, the port, and whether policy is in force.
//
// The agent runs host-local from cniPluginDir for the network "felixlike"
// (/var/lib/cni/networks/felixlike). If cniPluginDir is empty, it serves no plugin; the
// lab attaches pods itself, by the same code. A sandbox has one interface. A hundred
// ADDs at once, on a busy two-core machine with nftables: p50 1.5 s, p99 3.3 s; one
// alone takes 30 to 180 ms, the plugin's own start included (test/e2e: TestCNIStorm,
// TestCNI, TestCNIFailsClosed).
package cni
