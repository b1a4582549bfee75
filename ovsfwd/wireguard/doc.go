// Package wireguard programs the host's WireGuard device, by which packets between pods of different nodes travel
// encrypted: the link with its MTU, addresses and reverse-path filter, the private key, the UDP port and the peers.
//
//	pod -> bridge -> gateway port -> host: FORWARD -> route -> device: encrypts -> UDP to the peer's address
//	UDP of a peer -> device: decrypts, and drops sources that are not the peer's -> host: FORWARD -> gateway port
//
// The routes into the device belong to ovsfwd/hostnet, and the rules that let nothing pass by it to rules.Cleartext.
//
// Device is a reconciler: it reads the observed state and writes only differences, so that a restart leaves sessions
// alone. Nothing in the kernel reports a change of keys or peers, so Watch reads them every few seconds.
//
// The package makes the private key and keeps it in a file; it never logs it. It knows nothing of policy. Its decisions are
// tested as pure functions, and its writes in a virtual machine (test/e2e: TestWireGuard), because the kernel of a
// development machine may have no WireGuard.
package wireguard
