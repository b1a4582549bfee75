package cases

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/dump/compare"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/cmd/felixctl/trace/cluster"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/policy/oracle"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/model"
)

// end is a pod, a node or an address outside, with its addresses.
type end struct {
	name      string
	addresses []netip.Addr
	pod       bool
}

func (e end) node() bool { return strings.HasPrefix(e.name, "node ") }

// withHostPolicies returns the model with the policies of the node among those of pods: their ports and blocks divide packets, too.
func withHostPolicies(m *control.Model) *control.Model {
	if m.HostPolicies.Empty() {
		return m
	}
	all := *m
	all.Policies = slices.Concat(m.Policies, m.HostPolicies.Policies)
	all.Groups = slices.Clone(m.Groups)
	for _, g := range m.HostPolicies.Groups {
		if !slices.ContainsFunc(all.Groups, func(o control.Group) bool { return o.ID == g.ID }) {
			all.Groups = append(all.Groups, control.Group{Group: g.Group, Members: g.Members})
		}
	}
	return &all
}

// verdicts is a table of ports to which policy denies some connections, with the ends that
// may connect. It fails the test if a backend decides differently.
func (o objects) verdicts(t *testing.T) string {
	t.Helper()
	var models []*control.Model
	for _, n := range o.Nodes {
		models = append(models, o.model(t, n.Name))
	}
	sites := map[string][]*trace.Site{}
	for _, backend := range []string{config.NFTables, config.IPTablesLegacy, config.IPTablesNFT, config.OpenFlow} {
		for _, m := range models {
			s, err := wanted.Of(m, backend)
			if err != nil {
				t.Fatal(err)
			}
			sites[backend] = append(sites[backend], cluster.SiteOf(m, s))
		}
	}
	reference := &oracle.Cluster{
		Nodes: o.Nodes, Namespaces: o.Namespaces, Pods: o.Pods, Policies: o.Policies, ClusterPolicies: o.ClusterPolicies, Antrea: o.Antrea,
	}
	reference.Hosts = map[string]oracle.Host{}
	for i, m := range models {
		reference.Hosts[m.Node] = oracle.Host{Failsafe: *m.Failsafe}
		models[i] = withHostPolicies(m)
	}
	judge := func(p trace.Packet) bool {
		j, err := trace.Judge(p, reference, nil)
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		for backend, all := range sites {
			path, err := trace.Follow(p, all, nil)
			if err != nil {
				t.Fatalf("%s: %s: %v", backend, p, err)
			}
			if why := trace.Compare(j, path); why != "" {
				t.Errorf("%s: %s: %s", backend, p, why)
			}
		}
		return j.Through
	}
	ends, ports := endsOf(models), compare.PortsOf(nil, models...)
	table := terminal.NewTable(terminal.Style{}, "TO", "PORT", "ALLOWED FROM", "DENIED FROM")
	rows := 0
	for _, to := range ends {
		var found []row
		for _, port := range ports {
			found = add(found, rowOf(ends, to, port, func(from end) bool {
				hosts := slices.ContainsFunc(models, func(m *control.Model) bool { return !m.HostPolicies.Empty() && (from.node() || to.node()) })
				return from.name != to.name && (from.pod || to.pod || hosts)
			}, judge))
		}
		for _, r := range found {
			if len(r.denied) > 0 {
				table.Row(to.name, strings.Join(r.ports, ", "), strings.Join(r.allowed, ", "), strings.Join(r.denied, ", "))
				rows++
			}
		}
	}
	if rows == 0 {
		return "all connections are allowed\n"
	}
	return table.String() + "\nall other connections are allowed\n"
}

// row lists the ends that may connect to some ports of an end, and those that may not.
type row struct{ ports, allowed, denied []string }

// add adds a row, or its port to the row that says the same.
func add(all []row, r row) []row {
	for i := range all {
		if slices.Equal(all[i].allowed, r.allowed) && slices.Equal(all[i].denied, r.denied) {
			all[i].ports = append(all[i].ports, r.ports...)
			return all
		}
	}
	return append(all, r)
}

// rowOf evaluates connections from all ends. If the verdicts for an end differ between the
// families, the row names the end with the family.
func rowOf(ends []end, to end, port compare.Port, judged func(from end) bool, judge func(trace.Packet) bool) row {
	r := row{ports: []string{portName(port)}}
	for _, from := range ends {
		if !judged(from) {
			continue
		}
		through := map[bool][]string{}
		for _, s := range from.addresses {
			for _, d := range to.addresses {
				if f := model.FamilyOf(s); f == model.FamilyOf(d) {
					p := port
					if p.Protocol == model.ICMP && f == model.IPv6 {
						p.Protocol = model.ICMPv6
					}
					v := judge(trace.Packet{Source: s, Destination: d, Protocol: p.Protocol, Port: p.Number, Conn: trace.New})
					through[v] = append(through[v], from.name+" (IPv"+f.String()+")")
				}
			}
		}
		switch {
		case len(through[false]) == 0 && len(through[true]) > 0:
			r.allowed = append(r.allowed, from.name)
		case len(through[true]) == 0 && len(through[false]) > 0:
			r.denied = append(r.denied, from.name)
		default:
			r.allowed, r.denied = append(r.allowed, through[true]...), append(r.denied, through[false]...)
		}
	}
	return r
}

func portName(p compare.Port) string {
	if p.Protocol == model.ICMP && p.Number == 0 {
		return "icmp"
	}
	if p.Protocol == model.ICMP {
		return model.PortRange{Protocol: p.Protocol, First: p.Number, Last: p.Number}.String()
	}
	return fmt.Sprintf("%d/%s", p.Number, p.Protocol)
}

// endsOf returns the ends of all nodes' models.
func endsOf(models []*control.Model) []end {
	var all []end
	for _, e := range compare.EndsOf(nil, models...) {
		i := slices.IndexFunc(all, func(o end) bool { return o.name == e.Name })
		if i < 0 {
			pod := slices.ContainsFunc(models[0].Pods, func(p control.Pod) bool { return p.ID.String() == e.Name })
			all, i = append(all, end{name: e.Name, pod: pod}), len(all)
		}
		all[i].addresses = append(all[i].addresses, e.Address)
	}
	return all
}
