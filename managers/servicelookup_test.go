package managers

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// elementsOf is a table of Services that keeps the elements.
type elementsOf struct{ ServiceElements }

func (elementsOf) UpdateChain(tables.Chain) {}
func (elementsOf) RemoveChain(string)       {}
func (elementsOf) RemoveSet(string)         {}

func (e elementsOf) UpdateSet(s tables.LargeSet) {
	if e.ServiceElements[s.Name] == nil {
		e.ServiceElements[s.Name] = map[string]string{}
	}
}
func (e elementsOf) Put(set, key, value string) { e.ServiceElements[set][key] = value }
func (e elementsOf) Remove(set, key string)     { delete(e.ServiceElements[set], key) }

// TestServiceLead: what the elements say of each kind of frontend and client.
func TestServiceLead(t *testing.T) {
	table := elementsOf{ServiceElements{}}
	m := NewServiceManager("node1", nil, table)
	endpoints := func(format string, from, to int) (all []model.ServiceEndpoint) {
		for i := from; i < to; i++ {
			all = append(all, model.ServiceEndpoint{AddrPort: netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf(format, i)), 8080)})
		}
		return all
	}
	for f, a := range map[model.Family][4]string{model.IPv4: {"10.96.0.1", "192.0.2.1", "0.0.0.0", "10.10.0.%d"}, model.IPv6: {"fd96::1", "fd92::1", "::", "fd10::%d"}} {
		addr := func(i int) netip.Addr { return netip.MustParseAddr(a[i]) }
		all, here := endpoints(a[3], 1, 4), endpoints(a[3], 1, 2)
		sources := map[model.Family]string{model.IPv4: "198.51.100.0/24", model.IPv6: "2001:db8::/64"}[f]
		frontends := []model.Frontend{
			{Kind: model.ClusterIP, Addr: addr(0), Port: 80, Endpoints: all, Inside: all},
			{Kind: model.NodePort, Addr: addr(2), Port: 30080, Endpoints: here, Inside: all, Empty: model.DropSilently},
			{Kind: model.ExternalIP, Addr: addr(1), Port: 80, Inside: all, Empty: model.DropSilently},
			{Kind: model.LoadBalancerIP, Addr: addr(1), Port: 81, Endpoints: all, Inside: all, Sources: []netip.Prefix{netip.MustParsePrefix(sources)}},
			{Kind: model.ClusterIP, Addr: addr(0), Port: 82},
		}
		for _, affinity := range []time.Duration{0, time.Hour} {
			id := model.ServicePortID{Namespace: "shop", Name: fmt.Sprint(f, affinity), Protocol: model.TCP, Port: 80}
			if affinity > 0 {
				id.Protocol = model.UDP
			}
			m.OnUpdate(model.ServicePortUpdate{Port: &model.ServicePort{ID: id, Affinity: affinity, Frontends: frontends}})
		}
	}
	m.OnUpdate(model.NodeUpdate{Node: &model.Node{Name: "node1"}})
	m.OnUpdate(model.ServiceHealthUpdate{})
	m.CompleteDeferredWork()
	for f, a := range map[model.Family][5]string{
		model.IPv4: {"10.96.0.1", "192.0.2.1", "0.0.0.0", "10.10.0.%d", "198.51.100.7"}, model.IPv6: {"fd96::1", "fd92::1", "::", "fd10::%d", "2001:db8::7"},
	} {
		list := func(to int) (all []netip.AddrPort) {
			for _, e := range endpoints(a[3], 1, to) {
				all = append(all, e.AddrPort)
			}
			return all
		}
		stranger := map[model.Family]string{model.IPv4: "198.51.101.0", model.IPv6: "2001:db8:0:1::"}[f]
		for _, c := range []struct {
			client  string
			outside bool
			address string
			port    uint16
			want    ServiceLead
			missing bool
		}{
			{a[4], false, a[0], 80, ServiceLead{Endpoints: list(4)}, false},
			{a[4], true, a[0], 80, ServiceLead{Endpoints: list(4)}, false},
			{a[4], true, a[2], 30080, ServiceLead{Endpoints: list(2)}, false},
			{a[4], false, a[2], 30080, ServiceLead{Endpoints: list(4)}, false},
			{a[4], true, a[1], 80, ServiceLead{Silent: true}, false},
			{a[4], false, a[1], 80, ServiceLead{Endpoints: list(4)}, false},
			{a[4], true, a[1], 81, ServiceLead{Endpoints: list(4)}, false},
			{stranger, true, a[1], 81, ServiceLead{Barred: true}, false},
			{a[4], true, a[0], 82, ServiceLead{Refused: true}, false},
			{a[4], true, a[0], 83, ServiceLead{NoPort: true}, false},
			{a[4], true, a[1], 83, ServiceLead{}, true},
		} {
			for p, affinity := range map[model.Protocol]time.Duration{model.TCP: 0, model.UDP: time.Hour} {
				if c.want.Endpoints != nil {
					c.want.Affinity = affinity
				}
				got, found := table.Lead(netip.MustParseAddr(c.client), c.outside, netip.AddrPortFrom(netip.MustParseAddr(c.address), c.port), p)
				if d := cmp.Diff(c.want, got, cmpopts.EquateComparable(netip.AddrPort{})); d != "" || found == c.missing {
					t.Errorf("%s to %s, port %d/%s: found %v\n%s", c.client, c.address, c.port, p, found, d)
				}
			}
		}
	}
}
