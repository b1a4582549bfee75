package rules

// The bits of the marks of packets and connections that felixlike uses,
// allocated here and nowhere else.
//
// Other programs on a node have claimed bits already: kube-proxy 0x4000
// (masquerade) and 0x8000 (drop); Antrea's pipeline pkt_mark 0x1 and 0xff
// (SNAT ids) and the ct_mark bits 0x20 and 0x40; Tailscale 0xff0000; Cilium
// 0xf00. The top nibble is free of all of them.
const (
	// MarkPass tells, within one evaluation of the admin tier, that a policy
	// passed the packet on to the next tier. It is cleared before the tier
	// and has no meaning after it.
	MarkPass uint32 = 0x10000000

	// MarkMasquerade is kube-proxy's, who masquerades what has it: also what a pod
	// sends to a pod of another node through a port of its own node, where policy
	// has to see whose it is. There it is cleared. (kube-proxy may be told another
	// bit; that it masquerades then cannot be seen in the packet.)
	MarkMasquerade uint32 = 0x00004000

	// MarkJudged means that egress policy allows the packet, or that another node has
	// judged its egress. Egress clears it first; ingress requires it. A packet without
	// it passes only after another program flushed forward: then its connection does
	// not get MarkAllowed.
	MarkJudged uint32 = 0x40000000

	// MarkAllowed tells, in the mark of a connection, that policy let its packets
	// through. Only such a connection goes on without being judged: one that came
	// to be while there was no policy (somebody flushed the ruleset, or the agent was
	// not there yet) is judged at its next packet.
	MarkAllowed uint32 = 0x20000000
)
