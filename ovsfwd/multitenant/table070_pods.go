package multitenant

// Table 70: pods of this node. Table 80: the numbers of sender and receiver. Table 90: pods of other nodes.
//
//	table=70,priority=400,ip,reg3=0/0x2,nw_dst=IP actions=set_field:MAC->eth_dst,set_field:0x2/0x2->reg3,resubmit(,70)
//	table=70,priority=100,ip,nw_dst=IP actions=set_field:NUMBER->reg1,set_field:POD->reg2,goto_table:80                      *
//	table=70,priority=0 actions=drop
//	table=80,priority=200,reg0=0 actions=output:NXM_NX_REG2[]                                                               *
//	table=80,priority=200,reg1=0 actions=output:NXM_NX_REG2[]                                                               *
//	table=80,priority=100,reg0=NUMBER,reg1=NUMBER actions=output:NXM_NX_REG2[]                                              *
//	table=80,priority=0 actions=drop                                                                                        *
//	table=90,priority=100,ip,nw_dst=ITS PODS actions=move:NXM_NX_REG0[]->NXM_NX_TUN_ID[0..31],set_field:NODE->tun_dst,output:TUNNEL    *
//	table=90,priority=0 actions=drop

import (
	"math"
	"net/netip"

	"github.com/felixlike/felixlike/ovsfwd/openflow"
)

func podsBase() []openflow.Flow { return []openflow.Flow{drop(tablePods)} }

func podsPod(p pod) []openflow.Flow {
	return []openflow.Flow{
		address(tablePods, to(single(p.address)), p.mac),
		flow(tablePods, 100, to(single(p.address)), deliver(p.number, p.port)...),
	}
}

func numbersBase() []openflow.Flow {
	return []openflow.Flow{
		flow(tableNumbers, 200, openflow.Any().Bits(sender, 0, math.MaxUint32), openflow.OutputRegister(outPort)),
		flow(tableNumbers, 200, openflow.Any().Bits(receiver, 0, math.MaxUint32), openflow.OutputRegister(outPort)),
		drop(tableNumbers),
	}
}

func numbersTenant(number uint32) openflow.Flow {
	m := openflow.Any().Bits(sender, number, math.MaxUint32).Bits(receiver, number, math.MaxUint32)
	return flow(tableNumbers, 100, m, openflow.OutputRegister(outPort))
}

func tunnelBase() []openflow.Flow { return []openflow.Flow{drop(tableTunnel)} }

func tunnelPeer(n Node, outer netip.Addr, pods netip.Prefix) []openflow.Flow {
	return []openflow.Flow{flow(tableTunnel, 100, to(pods), encapsulate(n, outer)...)}
}
