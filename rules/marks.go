package rules

// The bits of the packet mark that felixlike uses, allocated here and nowhere
// else.
//
// Other programs on a node have claimed bits already: kube-proxy 0x4000
// (masquerade) and 0x8000 (drop); Antrea's pipeline pkt_mark 0x1 and 0xff
// (SNAT ids) and the ct_mark bits 0x20 and 0x40; Tailscale 0xff0000; Cilium
// 0xf00. The top nibble is free of all of them.
//
// No bit of the ct mark is used: accepted connections are recognised by their
// conntrack state alone.
const (
	// MarkPass tells, within one evaluation of the admin tier, that a policy
	// passed the packet on to the next tier. It is cleared before the tier
	// and has no meaning after it.
	MarkPass uint32 = 0x10000000
)
