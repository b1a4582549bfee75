package onepod

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/dump"
	"github.com/felixlike/felixlike/cmd/felixctl/dump/wanted"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// TestPartOfEachBackend: a pod's part has the policies that apply to the pod, and none of another pod's.
func TestPartOfEachBackend(t *testing.T) {
	m := twoPods()
	for _, backend := range []string{config.NFTables, config.IPTablesLegacy, config.IPTablesNFT, config.OpenFlow} {
		t.Run(backend, func(t *testing.T) {
			all, err := wanted.Of(m, backend)
			if err != nil {
				t.Fatal(err)
			}
			before := text(t, all)
			a, b := []string{"10.1.0.2", "fd00::2", "192.0.2.1", "8001"}, []string{"10.1.0.3", "fd00::3", "192.0.2.2", "8002"}
			for name, of := range map[string]struct{ own, other []string }{"a": {a, b}, "b": {b, a}} {
				part, err := Of(all, m, model.PodID{Namespace: "x", Name: name})
				if err != nil {
					t.Fatal(err)
				}
				got := text(t, part)
				for _, want := range of.own {
					if !strings.Contains(got, want) {
						t.Errorf("the part of %s has no %s:\n%s", name, want, got)
					}
				}
				for _, other := range of.other {
					if strings.Contains(got, other) {
						t.Errorf("the part of %s has %s:\n%s", name, other, got)
					}
				}
			}
			if after := text(t, all); after != before {
				t.Errorf("the whole state was changed:\n%s\n%s", before, after)
			}
		})
	}
}

func TestUnknownPod(t *testing.T) {
	if _, err := Of(&dump.State{}, twoPods(), model.PodID{Namespace: "x", Name: "c"}); err == nil || !strings.Contains(err.Error(), "no interface on node n1") {
		t.Error(err)
	}
}

// twoPods is the model of a node with two pods, each under a policy of its own.
func twoPods() *control.Model {
	m := &control.Model{
		Node: "n1", HostAddresses: []netip.Addr{netip.MustParseAddr("192.0.2.77")},
		Nodes: []*model.Node{{Name: "n1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd00::/64")}}},
	}
	for i, name := range []string{"a", "b"} {
		id := model.PodID{Namespace: "x", Name: name}
		policy := model.PolicyID{Tier: model.TierNetworkPolicy, Namespace: "x", Name: name}
		group := model.GroupID("of-" + name)
		rules := []model.Rule{{
			Peers: []model.GroupID{group}, Action: model.Allow,
			Ports: []model.PortRange{{Protocol: model.TCP, First: uint16(8001 + i), Last: uint16(8001 + i)}},
		}}
		m.Groups = append(m.Groups, control.Group{
			Group: model.Group{ID: group, Kind: model.Addresses}, Members: []model.Member{model.AddressMember(netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", i+1)))},
		})
		m.Policies = append(m.Policies, &model.Policy{ID: policy, Ingress: rules, Egress: rules})
		applied := model.Applied{NetworkPolicies: []model.PolicyID{policy}}
		m.Endpoints = append(m.Endpoints, &model.Endpoint{ID: id, Ingress: applied, Egress: applied})
		m.Attachments = append(m.Attachments, control.Attachment{
			Pod: id, Interface: "flx" + name, OFPort: uint32(10 + i), MAC: fmt.Sprintf("0a:00:00:00:00:0%d", i+1),
			Addresses: []netip.Addr{netip.MustParseAddr(fmt.Sprintf("10.1.0.%d", i+2)), netip.MustParseAddr(fmt.Sprintf("fd00::%d", i+2))},
		})
	}
	return m
}

func text(t *testing.T, s *dump.State) string {
	t.Helper()
	var b strings.Builder
	if err := dump.Write(&b, s, dump.TextOptions{}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
