package rules

// The bits of the marks of packets and connections that felixlike uses,
// allocated here and nowhere else.
//
// Other programs on a node have claimed bits already: kube-proxy 0x4000
// (masquerade) and 0x8000 (drop); Antrea's pipeline pkt_mark 0x1 and 0xff
// (SNAT ids) and the ct_mark bits 0x20 and 0x40; Tailscale 0xff0000; Cilium
// 0xf00. The top nibble is free of all of them.
const (
	// MarkPass means, within one evaluation of the admin tier, that a policy
	// passed the packet on to the next tier. It is cleared before the tier
	// and has no meaning after it.
	MarkPass uint32 = 0x10000000

	// MarkMasquerade is kube-proxy's: it masquerades packets with this mark. It also
	// sets it on packets of a pod to a pod of another node through a NodePort of the
	// own node. There we clear it, because policy needs the pod's address. (kube-proxy
	// can be configured with another bit, which we do not recognise.)
	MarkMasquerade uint32 = 0x00004000

	// MarkJudged means that egress policy allows the packet, or that another node has
	// judged its egress. Egress clears it first; ingress requires it. A packet without
	// it passes only after another program flushed forward: then its connection does
	// not get MarkAllowed.
	MarkJudged uint32 = 0x40000000

	// MarkRejected means that policy rejects the packet. Only the iptables backends use it:
	// policy judges in mangle, but the kernel answers in filter only. There the packet is
	// answered and dropped. If it comes past that chain, mangle's POSTROUTING drops it.
	// Forward clears it first.
	// A packet to the own node has it while policy judges it, and is dropped at once if
	// policy rejects it: INPUT has no later chain that could drop it.
	MarkRejected uint32 = 0x80000000

	// MarkBelieved means that a packet from the network between the nodes has a pod address that its sender's
	// node owns (Senders). There only the modes without a tunnel, and encryption, use it. The table of Senders clears it on every packet first. No
	// other program of the list above claims the bit. Calico's default mask (0xffff0000) contains it.
	// In INPUT it means that a packet to the tunnel port is from a node (Tunnel). Rules of a firewall can accept
	// packets by it. In the mode networkPolicyOnly it means that a packet comes from a pod of this node (PodSources).
	// The table of TunnelChains clears it at the end of INPUT: the packet inside gets the mark of the outer one.
	MarkBelieved uint32 = 0x08000000

	// MarkAway means, in the mark of a connection, that a pod began it while another node had the source address of its Egress:
	// it leaves by the tunnel to that node, or not at all. In the mark of a packet it chooses the route there. No other program
	// of the list above claims the bit. Calico's default mask (0xffff0000) contains it.
	MarkAway uint32 = 0x04000000

	// MarkService, in the mark of a connection, means that the table of Services has given it an endpoint. Its source may have to
	// change, too. Connections that other programs translate (host ports of containers) do not have it. In the mark of a packet, the
	// same bit is MarkPass.
	MarkService uint32 = 0x10000000

	// MarkAllowed, in the mark of a connection, means that policy allowed its packets.
	// Only such a connection goes on without being judged. A connection that began
	// while there was no policy (another program flushed the ruleset, or the agent did
	// not run yet) is judged at its next packet.
	MarkAllowed uint32 = 0x20000000

	// MarkSettled, in the mark of a connection with MarkAllowed, means that the kernel will not begin to translate it: the
	// other side has answered. The switch passes no packet of a connection without it by the host (offload). No other program
	// of the list above claims this bit or the next one. Calico's default mask (0xffff0000) contains both.
	MarkSettled uint32 = 0x02000000

	// MarkUntranslated, in the mark of a connection with MarkSettled, means that the kernel rewrites neither its source nor
	// its destination: the switch has nothing to rewrite.
	MarkUntranslated uint32 = 0x01000000
)
