package rules

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// ServicesTable is the name of the table of Services, which is the same beside every backend.
const ServicesTable = "felixlike-services"

// Priorities of the chains of Services: where kube-proxy has them. Policy comes after them in FORWARD and INPUT. In OUTPUT, NAT has
// put the endpoints of connections in place before packets are refused.
const (
	priorityServices        = -100
	priorityRefused         = -160
	priorityRefusedOutput   = -90
	priorityServicesSources = 100
)

// Names of the chains of Services.
const (
	chainServicesOutside = "services-outside"
	chainServicesInside  = "services-inside"
	chainServiceSources  = "service-sources"
	chainForwarded       = "service-forwarded"
)

// ServiceChains returns the purpose of the chains of Services that all frontends share.
func ServiceChains() map[string]string {
	return map[string]string{
		chainServicesOutside: "connections to Services from clients that are not on this node", chainServicesInside: "connections to Services",
		ChainServiceBarred: "connections from outside the source ranges", ChainServiceSilent: "connections without an endpoint of this node (policy Local)",
		ChainServiceRefused: "connections to Services without endpoints", ChainServiceNoPort: "connections to cluster IPs, at ports that no Service has",
		chainServiceSources: "source addresses of connections through Services",
		chainForwarded:      "the same, forwarded",
	}
}

// The chains that refuse and drop connections to Services, for all frontends. Their names are the prefixes of their reports.
const (
	ChainServiceRefused = "refuse"
	// ChainServiceNoPort refuses connections to a cluster IP at a port that its Service does not have.
	ChainServiceNoPort = "refuse-port"
	// ChainServiceBarred drops clients outside of the source ranges, ChainServiceSilent those for whom policy Local has no endpoint.
	ChainServiceBarred = "service-barred"
	ChainServiceSilent = "service-silent"
)

// ServicePicks is the largest number of endpoints whose chain always exists.
const ServicePicks = 64

// FirstServiceID is above all slots that are drawn.
const FirstServiceID = 2 * ServiceOutsideSlot

// ServiceOutsideSlot is the first slot of the endpoints for clients that are not on this node (clients outside), where a frontend has others for them.
const ServiceOutsideSlot = 1 << 16

// ServiceSet names a set or map of Services in one family.
type ServiceSet string

// The sets. A frontend is an address, a protocol and a port; of a NodePort the unspecified address.
const (
	// ServiceEndpoints leads from frontends and slots to endpoints; from ServicePicked, and if it differs for clients outside
	// from ServicePickedOutside, to the number of its chain (ServicePick.Number), in place of an address. Of frontends that remember
	// clients, slots lead to numbers of endpoints, and these to endpoints.
	ServiceEndpoints ServiceSet = "endpoints"
	// ServiceRefused has the frontends without any endpoint.
	ServiceRefused ServiceSet = "refused"
	// ServiceClusterIPs has the cluster IPs.
	ServiceClusterIPs ServiceSet = "cluster-ips"
	// ServiceRestricted has the frontends with source ranges, and ServiceSources the frontends with these ranges.
	ServiceRestricted ServiceSet = "restricted"
	ServiceSources    ServiceSet = "sources"
	// ServiceOwnPods has the pod prefixes of this node, ServiceNodePorts the prefixes of addresses on which NodePorts are served.
	ServiceOwnPods   ServiceSet = "own-pods"
	ServiceNodePorts ServiceSet = "node-addresses"
	// ServiceLocal has the addresses of endpoints on this node, each twice: as that of a pod that reaches itself.
	ServiceLocal ServiceSet = "local"
)

// Of returns the name of the set of a family.
func (s ServiceSet) Of(f model.Family) string { return string(s) + "-" + f.String() }

// ServiceSets returns the sets of Services of a family.
func ServiceSets(f model.Family) []tables.LargeSet {
	frontend := []tables.Part{tables.AddressPart, tables.ProtocolPart, tables.PortPart}
	endpoint := []tables.Part{tables.AddressPart, tables.PortPart}
	with := func(parts ...tables.Part) []tables.Part { return append(frontend[:3:3], parts...) }
	address := []tables.Part{tables.AddressPart}
	all := []tables.LargeSet{
		{Name: ServiceEndpoints.Of(f), Key: with(tables.NumberPart), Value: endpoint},
		{Name: ServiceRefused.Of(f), Key: frontend},
		{Name: ServiceClusterIPs.Of(f), Key: address},
		{Name: ServiceRestricted.Of(f), Key: frontend},
		{Name: ServiceSources.Of(f), Key: with(tables.AddressPart), Form: tables.Ranges},
		{Name: ServiceOwnPods.Of(f), Key: address, Form: tables.Intervals},
		{Name: ServiceNodePorts.Of(f), Key: address, Form: tables.Intervals},
		{Name: ServiceLocal.Of(f), Key: []tables.Part{tables.AddressPart, tables.AddressPart}},
	}
	for _, p := range []ServicePick{{}, {Outside: true}, {NodePort: true}, {NodePort: true, Outside: true}} {
		p.Family = f
		all = append(all, tables.LargeSet{Name: p.Map(), Key: []tables.Part{tables.NumberPart}, Verdicts: true})
	}
	for i := range all {
		all[i].Family = f
	}
	return all
}

// Clients returns the map in which clients of frontends are remembered for the time. Clients outside have a map of their own if other
// endpoints are for them: what was remembered while all clients had the same ones must not lead them to the others.
func (p ServicePick) Clients() tables.LargeSet {
	name := fmt.Sprintf("clients-%s-%d", p.Family, int(p.Affinity.Seconds()))
	if p.Outside {
		name += "-outside"
	}
	return tables.LargeSet{
		Name: name, Family: p.Family, Form: tables.Clients,
		Key:   []tables.Part{tables.AddressPart, tables.AddressPart, tables.ProtocolPart, tables.PortPart},
		Value: []tables.Part{tables.NumberPart},
	}
}

// ServicePick identifies the chain of all frontends with one number of endpoints.
type ServicePick struct {
	Family model.Family
	// NodePort is set for frontends with every address of the node, Outside for endpoints of clients outside.
	NodePort, Outside bool
	// Count is the number of endpoints.
	Count uint32
	// Affinity is how long the frontends remember a client; zero if they do not.
	Affinity time.Duration
}

// Name returns the name of the chain.
func (p ServicePick) Name() string {
	name := "pick-"
	if p.NodePort {
		name = "node-port-"
	}
	name = fmt.Sprintf("%s%s-%d", name, p.Family, p.Count)
	if p.Outside {
		name += "-outside"
	}
	if p.Affinity > 0 {
		name += fmt.Sprintf("-for-%d", int(p.Affinity.Seconds()))
	}
	return name
}

// The slots with the numbers of chains. No number of an endpoint is as large (managers.ServiceManager).
const (
	ServicePicked        = 1<<32 - 1
	ServicePickedOutside = 1<<32 - 2
)

// ServiceSilent is the number of frontends that drop, because they have no endpoint for the client.
const ServiceSilent = 0

// MaxServiceEndpoints bounds the endpoints of a frontend: the bits of a number beside those of the longest affinity, a day.
const MaxServiceEndpoints = 1<<15 - 1

// Number identifies the chain in its map.
func (p ServicePick) Number() uint32 { return uint32(p.Affinity/time.Second)<<15 | p.Count }

// ServicePickCount and ServicePickAffinity return the parts of a Number.
func ServicePickCount(number uint32) uint32 { return number & MaxServiceEndpoints }

func ServicePickAffinity(number uint32) time.Duration { return time.Duration(number>>15) * time.Second }

// Map returns the name of the map from numbers to chains.
func (p ServicePick) Map() string {
	name := "picks-"
	if p.NodePort {
		name = "node-ports-"
	}
	name += p.Family.String()
	if p.Outside {
		name += "-outside"
	}
	return name
}

// Chain renders the chain.
func (p ServicePick) Chain() tables.Chain {
	t := tables.Translate{
		Family: p.Family, Frontend: tables.AddressFrontend, Endpoints: ServiceEndpoints.Of(p.Family), Count: p.Count, ConnMark: MarkService,
	}
	if p.NodePort {
		t.Frontend = tables.AnyFrontend
	}
	if p.Outside {
		t.First = ServiceOutsideSlot
	}
	c := tables.Chain{Name: p.Name()}
	comment := "one of the endpoints"
	if p.Affinity > 0 {
		t.IDs = t.Endpoints
		learn := t
		learn.Clients, learn.Timeout = p.Clients().Name, p.Affinity
		recall := learn
		recall.Recall, recall.IDs, recall.First, recall.Count = true, "", 0, 0
		c.Rules = append(c.Rules,
			tables.Rule{Action: recall, Comment: "a client that is remembered"},
			tables.Rule{Action: learn, Comment: "another client"},
		)
		comment = "one more client than can be remembered"
	}
	c.Rules = append(c.Rules,
		tables.Rule{Action: t, Comment: comment},
		tables.Rule{Action: tables.Drop{}, Comment: "the endpoint has gone meanwhile: the client tries again"},
	)
	return c
}

// StandingPicks returns the chains that are there before a frontend needs one. A rule that comes to a full map makes the kernel look
// at all elements of the map.
func StandingPicks() (all []ServicePick) {
	for _, f := range model.Families() {
		for n := range uint32(ServicePicks) {
			for _, nodePort := range []bool{false, true} {
				for _, outside := range []bool{false, true} {
					all = append(all, ServicePick{Family: f, NodePort: nodePort, Outside: outside, Count: n + 1})
				}
			}
		}
	}
	return all
}

// Services renders the chains of Services but for those of picks and ServiceDrops, in a table of their own. It has no chain and no rule of a
// Service:
//
//	prerouting (nat)
//	  source in the pod prefixes of this node ..... goto services-inside
//	  goto services-outside: pods of other nodes too, whose own node has not served them
//	output (nat) .................................. goto services-inside
//	services-outside
//	  frontend with other endpoints for them ...... goto pick-...-outside, or service-silent
//	  local address that serves NodePorts: port ... the same
//	  goto services-inside
//	services-inside
//	  frontend .................................... goto pick-..., or service-silent
//	  local address that serves NodePorts: port ... goto node-port-..., or service-silent
//	both, before: frontend with source ranges, source in none of them . goto service-barred
//	pick-4-3
//	  endpoint of the frontend and a random slot of 3: DNAT; mark the connection
//	  drop: a commit has taken the slot away meanwhile
//	refused-forward, refused-input, refused-output (filter, before policy)
//	  new connection to a frontend without endpoints: goto refuse (ServiceDrops)
//	  to a cluster IP that is not translated ..... goto refuse-port
//	service-postrouting (nat, after Sources)
//	  connection with the mark
//	    a pod that reaches itself ................. masquerade
//	    forwarded, from a pod or to an endpoint of this node . the source is kept
//	    forwarded, any other: the answer has to come back to this node . masquerade
//	    of this node, but for loopback ............ masquerade
//
// and in refused-output, before: a reset that belongs to no connection . drop. The kernel answers so if NAT did not translate a segment
// back, because it is outside the window of its connection, and this node has no socket for what it says then. The endpoint would take the
// reset for one of the client's.
//
// The address of a NodePort is never one of loopback.
func Services() []tables.Chain {
	out := tables.MatchInterface{Side: tables.Destination, Name: loopback, Negated: true}
	inside := tables.Rule{Action: tables.Goto{Chain: chainServicesInside}, Comment: "a client on this node"}
	prerouting := tables.Chain{Name: ChainPrerouting, Hook: &tables.Hook{Type: tables.HookNAT, Point: tables.HookPrerouting, Priority: priorityServices}}
	outsideChain, insideChain := tables.Chain{Name: chainServicesOutside}, tables.Chain{Name: chainServicesInside}
	sources := tables.Chain{Name: chainServiceSources}
	forwarded := tables.Chain{Name: chainForwarded}
	for _, f := range model.Families() {
		from := tables.MatchKey{Family: f, Key: tables.Key{tables.SourceAddress}, Set: ServiceOwnPods.Of(f)}
		prerouting.Rules = append(prerouting.Rules, tables.Rule{Matches: []tables.Match{from}, Action: inside.Action, Comment: "from a pod of this node"})
		outsideChain.Rules = append(outsideChain.Rules, frontends(f, true)...)
		insideChain.Rules = append(insideChain.Rules, frontends(f, false)...)
		sources.Rules = append(sources.Rules, tables.Rule{
			Matches: []tables.Match{tables.MatchForwarded{}, tables.MatchKey{Family: f, Key: tables.Key{tables.SourceAddress, tables.DestinationAddress}, Set: ServiceLocal.Of(f)}},
			Action:  tables.Masquerade{}, Comment: "a pod reaches itself",
		})
		forwarded.Rules = append(forwarded.Rules,
			tables.Rule{
				Matches: []tables.Match{tables.MatchKey{Family: f, Key: tables.Key{tables.SourceAddress}, Set: ServiceOwnPods.Of(f)}},
				Action:  tables.Return{}, Comment: "from a pod of this node",
			},
			tables.Rule{
				Matches: []tables.Match{tables.MatchKey{Family: f, Key: tables.Key{tables.DestinationAddress, tables.DestinationAddress}, Set: ServiceLocal.Of(f)}},
				Action:  tables.Return{}, Comment: "to an endpoint of this node",
			},
			tables.Rule{
				Matches: []tables.Match{tables.MatchKey{Family: f, Key: tables.Key{tables.DestinationAddress}, Set: ServiceOwnPods.Of(f)}},
				Action:  tables.Return{}, Comment: "to a pod of this node", // the endpoint may have no nodeName
			},
		)
	}
	prerouting.Rules = append(prerouting.Rules, tables.Rule{Action: tables.Goto{Chain: chainServicesOutside}, Comment: "a client outside this node"})
	outsideChain.Rules = append(outsideChain.Rules, tables.Rule{Action: inside.Action, Comment: "the same endpoints for all clients"})
	sources.Rules = append(sources.Rules,
		tables.Rule{Matches: []tables.Match{tables.MatchForwarded{}}, Action: tables.Goto{Chain: chainForwarded}, Comment: "not of this node"},
		tables.Rule{Matches: []tables.Match{out}, Action: tables.Masquerade{}, Comment: "this node itself"},
	)
	forwarded.Rules = append(forwarded.Rules, tables.Rule{Action: tables.Masquerade{}, Comment: "the answer has to come back to this node"})
	all := []tables.Chain{
		prerouting,
		{Name: "output", Hook: &tables.Hook{Type: tables.HookNAT, Point: tables.HookOutput, Priority: priorityServices}, Rules: []tables.Rule{inside}},
		outsideChain, insideChain, forwarded, sources,
		{
			Name: "service-postrouting", Hook: &tables.Hook{Type: tables.HookNAT, Point: tables.HookPostrouting, Priority: priorityServicesSources},
			Rules: []tables.Rule{{
				Matches: []tables.Match{tables.MatchConnMark{Value: MarkService, Mask: MarkService}, tables.MatchConnDNAT{}},
				Action:  tables.Goto{Chain: chainServiceSources}, Comment: "through a service",
			}},
		},
	}
	for _, at := range []struct {
		name     string
		point    tables.HookPoint
		priority int32
	}{
		{"refused-forward", tables.HookForward, priorityRefused},
		{"refused-input", tables.HookInput, priorityRefused},
		{"refused-output", tables.HookOutput, priorityRefusedOutput},
	} {
		var rules []tables.Rule
		if at.point == tables.HookOutput {
			rules = append(rules, tables.Rule{
				Matches: []tables.Match{
					tables.MatchConnState{States: tables.StateInvalid}, tables.MatchProtocol{Protocol: model.TCP}, tables.MatchReset{},
				},
				Action: tables.Drop{}, Comment: "a reset that belongs to no connection",
			})
		}
		all = append(all, tables.Chain{
			Name: at.name, Hook: &tables.Hook{Type: tables.HookFilter, Point: at.point, Priority: at.priority}, Rules: append(rules, refused()...),
		})
	}
	for i := range all {
		all[i].Origin = tables.OfEveryPod{}
	}
	return all
}

// frontends renders the rules that look frontends of one family up.
func frontends(f model.Family, outside bool) []tables.Rule {
	clients := append(tables.AddressFrontend[:3:3], tables.SourceAddress)
	verdict := func(k tables.Key, nodePort bool) tables.Action {
		pick, slot := ServicePick{Family: f, NodePort: nodePort, Outside: outside}, uint32(ServicePicked)
		if outside {
			slot = ServicePickedOutside
		}
		return tables.DispatchKey{Family: f, Frontend: k, Endpoints: ServiceEndpoints.Of(f), Slot: slot, Map: pick.Map()}
	}
	return []tables.Rule{
		{
			Matches: []tables.Match{
				tables.MatchKey{Family: f, Key: tables.AddressFrontend, Set: ServiceRestricted.Of(f)},
				tables.MatchKey{Family: f, Key: clients, Set: ServiceSources.Of(f), Negated: true},
			},
			Action: tables.Goto{Chain: ChainServiceBarred}, Comment: "not in the source ranges",
		},
		{Action: verdict(tables.AddressFrontend, false), Comment: "to an address of a service"},
		{Matches: toNodePort(f), Action: verdict(tables.AnyFrontend, true), Comment: "to a node port"},
	}
}

// toNodePort matches packets to the addresses of this node on which NodePorts are served.
func toNodePort(f model.Family) []tables.Match {
	never := netip.MustParsePrefix("127.0.0.0/8")
	if f == model.IPv6 {
		never = netip.MustParsePrefix("::1/128")
	}
	return []tables.Match{
		tables.MatchKey{Family: f, Key: tables.Key{tables.DestinationAddress}, Set: ServiceNodePorts.Of(f)},
		tables.MatchLocal{Side: tables.Destination},
		tables.MatchPrefix{Side: tables.Destination, Prefix: never, Negated: true},
	}
}

// refused renders the rules that find new connections to frontends without endpoints, and to what is no frontend of a cluster IP. Only chains of the type filter can answer.
func refused() (all []tables.Rule) {
	begins := tables.MatchConnState{States: tables.StateNew}
	for _, f := range model.Families() {
		all = append(all,
			tables.Rule{
				Matches: []tables.Match{begins, tables.MatchKey{Family: f, Key: tables.AddressFrontend, Set: ServiceRefused.Of(f)}},
				Action:  tables.Goto{Chain: ChainServiceRefused}, Comment: "no endpoint of the service",
			},
			tables.Rule{
				Matches: append([]tables.Match{begins, tables.MatchKey{Family: f, Key: tables.AnyFrontend, Set: ServiceRefused.Of(f)}}, toNodePort(f)...),
				Action:  tables.Goto{Chain: ChainServiceRefused}, Comment: "no endpoint of the node port",
			},
			tables.Rule{
				Matches: []tables.Match{begins, tables.MatchKey{Family: f, Key: tables.Key{tables.DestinationAddress}, Set: ServiceClusterIPs.Of(f)}},
				Action:  tables.Goto{Chain: ChainServiceNoPort}, Comment: "no port of the service",
			},
		)
	}
	return all
}

// ServiceDrops renders the chains that refuse and drop connections. While a client follows, they report them first.
func ServiceDrops(reported bool) []tables.Chain {
	refuses := func(name, why string) tables.Chain {
		return tables.Chain{Name: name, Rules: append(reports(name, reported),
			tables.Rule{Action: tables.Reject{With: tables.PortUnreachable, PerSecond: AnswersPerSecond}, Comment: why},
			tables.Rule{Action: tables.Drop{}, Comment: why + ", and no more answers"},
		)}
	}
	all := []tables.Chain{
		refuses(ChainServiceRefused, "no endpoint"),
		refuses(ChainServiceNoPort, "no port of the service"),
		drops(ChainServiceBarred, "not in the source ranges", reported),
		drops(ChainServiceSilent, "no endpoint for this client", reported),
	}
	for i := range all {
		all[i].Origin = tables.OfEveryPod{}
	}
	return all
}
