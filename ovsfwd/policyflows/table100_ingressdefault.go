package policyflows

// Table 100, ingress that no NetworkPolicy allows: as table 60.
//
//	table=100,priority=200,ip,reg1=0x3 actions=drop                                    (isolated)
//	table=100,priority=80,ip,nw_src=B actions=conjunction(6,1/3)
//	table=100,priority=80,ip,reg1=0xb actions=conjunction(6,2/3)
//	table=100,priority=80,tcp,tp_dst=8080 actions=conjunction(6,3/3)
//	table=100,priority=80,conj_id=6,ip actions=set_field:0x6->reg3,
//	    set_field:0x100000/0x100000->reg0,resubmit(,101)
