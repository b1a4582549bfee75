package backend

import (
	"context"
	"net"
	"net/netip"

	"github.com/felixlike/felixlike/model"
)

// scratch makes a backend program a model in a scratch network namespace, and returns the
// objects that the kernel refused.
type scratch func(ctx context.Context, c Config, updates []model.Update) error

const tryNode = "node"

// tryModel is a model with one pod and rules that use each kind of set, port and action, in
// both families.
func tryModel() []model.Update {
	pod := model.PodID{Namespace: "default", Name: "pod"}
	admin := model.PolicyID{Tier: model.TierAdmin, Name: "admin"}
	policy := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "default", Name: "policy"}
	addresses := []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2")}
	const pods, networks, ports = "a1", "n1", "p1"
	group := func(id model.GroupID, kind model.GroupKind, members ...model.Member) model.GroupUpdate {
		return model.GroupUpdate{Group: model.Group{ID: id, Kind: kind}, Added: members}
	}
	v4, v6 := model.AddressMember(addresses[0]), model.AddressMember(addresses[1])
	named := func(m model.Member) model.Member {
		return model.Member{Prefix: m.Prefix, Protocol: model.TCP, Port: 80}
	}
	rules := []model.Rule{
		{Name: "0", Action: model.Allow, Peers: []model.GroupID{pods}, Ports: []model.PortRange{
			{Protocol: model.TCP, First: 80, Last: 90}, {Protocol: model.UDP, First: 53, Last: 53}, {Protocol: model.SCTP, First: 0, Last: 65535},
		}},
		{Name: "1", Action: model.Allow, Peers: []model.GroupID{networks}, AnyPort: true},
		{Name: "2", Action: model.Allow, AnyPeer: true, NamedPorts: []model.GroupID{ports}},
	}
	applied := model.Applied{Admin: []model.PolicyID{admin}, NetworkPolicies: []model.PolicyID{policy}}
	return []model.Update{
		model.NodeUpdate{Node: &model.Node{
			Name: tryNode, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")},
			PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/64")},
		}},
		group(pods, model.Addresses, v4, v6),
		group(networks, model.Networks, model.Member{Prefix: netip.MustParsePrefix("10.1.0.0/16")}, model.Member{Prefix: netip.MustParsePrefix("fd01::/64")}),
		group(ports, model.AddressPorts, named(v4), named(v6)),
		model.PolicyUpdate{Policy: &model.Policy{ID: admin, Ingress: []model.Rule{
			{Name: "0", Action: model.Pass, AnyPeer: true, AnyPort: true}, {Name: "1", Action: model.Deny, Peers: []model.GroupID{pods}, AnyPort: true},
		}}},
		model.PolicyUpdate{Policy: &model.Policy{ID: policy, Ingress: rules, Egress: rules}},
		model.AttachmentUpdate{Attachment: &model.Attachment{
			Pod: pod, Interface: model.PodInterfacePrefix + "pod", OFPort: 10, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}, Addresses: addresses,
		}},
		model.EndpointUpdate{Endpoint: &model.Endpoint{ID: pod, Ingress: applied, Egress: applied}},
	}
}
