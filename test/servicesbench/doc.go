// Package servicesbench measures who serves Services: the agent with serviceProxy full, and the real kube-proxy in its modes nftables
// and iptables, on the same node of a lab, with the same objects from the same API server, in turn. It holds one benchmark.
//
//	load      start -> Services answer -> the process rests: processor time, seconds, peak memory
//	restart   the same with everything programmed already
//	service   a new Service -> a connection to it is answered: processor time, milliseconds (median)
//	endpoint  another endpoint -> a new connection reaches it: the same
//	packet    connections of the node: to a pod, and to a Service with that pod, in turn: microseconds above the former (median)
//
// Processor time includes the programs that a process runs (iptables-restore, nft), and the kernel's for all of them.
package servicesbench
