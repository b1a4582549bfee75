package multitenant

// Table 0: where a packet came from. Rows of the reference have a star.
//
//	table=0,priority=400,ip,in_port=GATEWAY,nw_src=GWIP actions=goto_table:30
//	table=0,priority=300,ip,in_port=GATEWAY,nw_src=PODS,nw_dst=CLUSTER actions=goto_table:25   a pod's packet that the host translated
//	table=0,priority=250,ip,in_port=GATEWAY,nw_src=CLUSTER actions=drop                        would have the host's number
//	table=0,priority=200,ip,in_port=GATEWAY actions=goto_table:30                              *
//	table=0,priority=200,arp,in_port=GATEWAY,arp_spa=GWIP actions=goto_table:30
//	table=0,priority=200,ip,in_port=TUNNEL,nw_src=CLUSTER actions=move:NXM_NX_TUN_ID[0..31]->NXM_NX_REG0[],goto_table:10    *
//	table=0,priority=200,arp,in_port=TUNNEL,arp_spa=CLUSTER actions=(the same)
//	table=0,priority=150,in_port=GATEWAY actions=drop                                          (and TUNNEL)
//	table=0,priority=120,reg3=0/0x1,in_port=POD,dl_src=MAC actions=set_field:0x1/0x1->reg3,resubmit(,0)
//	table=0,priority=110,reg3=0/0x1 actions=drop                                               no pod, or another MAC address
//	table=0,priority=100,ip actions=goto_table:20                                              *
//	table=0,priority=100,arp actions=goto_table:20
//	table=0,priority=0 actions=drop

import "github.com/felixlike/felixlike/ovsfwd/openflow"

func dispatchBase(n Node) []openflow.Flow {
	host := func(m openflow.Match) openflow.Match { return m.InPort(n.GatewayPort) }
	tunnel := func(m openflow.Match) openflow.Flow {
		return flow(tableDispatch, 200, m.InPort(n.TunnelPort), openflow.CopyLow(openflow.TunID, sender, registerBits), jump(tablePeers))
	}
	gateway := single(n.Gateway)
	return []openflow.Flow{
		flow(tableDispatch, 400, host(from(gateway)), jump(tableRoutes)),
		flow(tableDispatch, 300, host(from(n.PodPrefix).Prefix(openflow.IPv4Dst, n.ClusterPrefix)), jump(tableFromHost)),
		flow(tableDispatch, 250, host(from(n.ClusterPrefix))),
		flow(tableDispatch, 200, host(openflow.IPv4()), jump(tableRoutes)),
		flow(tableDispatch, 200, host(openflow.ARP().Prefix(openflow.ARPSpa, gateway)), jump(tableRoutes)),
		tunnel(from(n.ClusterPrefix)),
		tunnel(openflow.ARP().Prefix(openflow.ARPSpa, n.ClusterPrefix)),
		flow(tableDispatch, 150, host(openflow.Any())),
		flow(tableDispatch, 150, openflow.Any().InPort(n.TunnelPort)),
		unchecked(tableDispatch),
		flow(tableDispatch, 100, openflow.IPv4(), jump(tableSenders)),
		flow(tableDispatch, 100, openflow.ARP(), jump(tableSenders)),
		drop(tableDispatch),
	}
}

func dispatchPod(p pod) []openflow.Flow {
	return []openflow.Flow{check(tableDispatch, openflow.Any().InPort(p.port).MAC(openflow.EthSrc, p.mac))}
}
