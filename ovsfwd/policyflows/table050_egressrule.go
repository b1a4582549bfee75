package policyflows

// Table 50, rules of NetworkPolicies for egress: all at priority 200, or if
// there are more of them than a flow can carry, in lanes of 200, 199, ... 191.
//
//	table=50,priority=200,ip,nw_src=A actions=conjunction(2,1/3)
//	table=50,priority=200,ip,nw_dst=B actions=conjunction(2,2/3)
//	table=50,priority=200,tcp,tp_dst=80 actions=conjunction(2,3/3)
//	table=50,priority=200,tcp,tp_dst=0x1f90/0xfff0 actions=conjunction(2,3/3)          (ports 8080 to 8095)
//	table=50,priority=208,tcp,reg7=0/0xffff,tp_dst=80 actions=set_field:0x1/0xffff->reg7,resubmit(,50)
//	table=50,priority=200,ip,reg7=0x1/0x1 actions=conjunction(2,3/3),conjunction(7,3/3) (a set of ports of many rules)
//	table=50,priority=200,tcp,nw_dst=B,tp_dst=8080 actions=conjunction(2,3/3)          (named port of B)
//	table=50,priority=200,ip actions=conjunction(3,2/2)                                (any peer, any port)
//	table=50,priority=190,conj_id=2,ip actions=set_field:0x2->reg5,
//	    ct(commit,table=61,zone=65520,exec(set_field:0x200000000/0xffffffff00000000->ct_label))
