package policyflows

// Table 90, rules of NetworkPolicies for ingress: as table 50, with the pods by
// their port and the peers as sources.
//
//	table=90,priority=209,ip,reg1=0x3 actions=drop                                     (closed pod)
//	table=90,priority=200,ip,nw_src=B actions=conjunction(3,1/3)
//	table=90,priority=200,ip,reg1=0x3 actions=conjunction(3,2/3)
//	table=90,priority=200,tcp,tp_dst=80 actions=conjunction(3,3/3)
//	table=90,priority=208,tcp,reg7=0/0xffff0000,tp_dst=80 actions=set_field:0x10000/0xffff0000->reg7,resubmit(,90)
//	table=90,priority=190,conj_id=3,ip actions=set_field:0x3->reg6,
//	    ct(commit,table=101,zone=65520,exec(set_field:0x3/0xffffffff->ct_label))
//
// The flows match the destination by the output port of the packet, not by its
// address: the port decides which pod gets the packet.
