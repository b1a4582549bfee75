package multitenant

// Table 60: Services, if the numbers of client and Service are equal (table 80). Fragments other than the first have no ports.
//
//	table=60,priority=100,ip,nw_dst=SERVICE,nw_frag=later actions=set_field:NUMBER->reg1,set_field:GATEWAY->reg2,goto_table:80    *
//	table=60,priority=100,tcp,nw_dst=SERVICE,tp_dst=PORT actions=(the same)                                                      *
//	table=60,priority=0 actions=drop

import "github.com/felixlike/felixlike/ovsfwd/openflow"

func servicesBase() []openflow.Flow { return []openflow.Flow{drop(tableServices)} }

func servicesService(n Node, s Service, number uint32) []openflow.Flow {
	service, toHost := to(single(s.Address)), deliver(number, n.GatewayPort)
	flows := []openflow.Flow{flow(tableServices, 100, service.LaterFragment(), toHost...)}
	for _, p := range s.Ports {
		flows = append(flows, flow(tableServices, 100, service.Protocol(p.Protocol).Port(openflow.DestinationPort(p.Protocol), p.Port, 0xffff), toHost...))
	}
	return flows
}
