package prove

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
)

// TestPreDNAT: policies of the node before DNAT see another destination than the proof. They are compared by their text: others are not proved, equal ones
// are assumed, and what judges after DNAT is proved beside them.
func TestPreDNAT(t *testing.T) {
	side := func(t *testing.T, port uint16, early bool, member string) Side {
		m := modelOf(t, events(t, filepath.Join(cases, "tier-pass.txtar")), "n1")
		group := model.HostGroup{Group: model.Group{ID: "aone", Kind: model.Addresses}, Members: []model.Member{model.AddressMember(nodeAddresses[0])}}
		if member != "" {
			group.Members = append(group.Members, model.AddressMember(nodeAddresses[1]))
		}
		deny := func(name string, port uint16) *model.Policy {
			return &model.Policy{ID: model.PolicyID{Tier: model.TierAdmin, API: model.AntreaCluster, Name: name}, Ingress: []model.Rule{{
				Name: "ingress[0]", Action: model.Deny, Peers: []model.GroupID{group.ID}, Ports: []model.PortRange{{Protocol: model.TCP, First: port, Last: port}},
			}}}
		}
		input, pre := deny("input", 80), deny("pre", port)
		m.HostPolicies = &model.HostPolicies{Ingress: model.Applied{Admin: []model.PolicyID{input.ID}}, Policies: []*model.Policy{input}, Groups: []model.HostGroup{group}}
		if early {
			pre.PreDNAT = true
			m.HostPolicies.PreDNAT.Admin = []model.PolicyID{pre.ID}
		} else {
			m.HostPolicies.Ingress.Admin = append(m.HostPolicies.Ingress.Admin, pre.ID)
		}
		m.HostPolicies.Policies = append(m.HostPolicies.Policies, pre)
		m.Failsafe = &model.Failsafe{}
		return Side{stateOf(t, *m, config.NFTables), m}
	}
	for name, test := range map[string]struct {
		a, b Side
		want string
	}{
		"equal":         {side(t, 30080, true, ""), side(t, 30080, true, ""), "equal"},
		"another port":  {side(t, 30080, true, ""), side(t, 30081, true, ""), "not proved"},
		"another group": {side(t, 30080, true, ""), side(t, 30080, true, "more"), "not proved"},
		"one side":      {side(t, 30080, true, ""), side(t, 30080, false, ""), "not proved"},
		"after DNAT":    {side(t, 30080, false, ""), side(t, 30081, false, ""), "different"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Compare(t.Context(), test.a, test.b, Options{OnlyOurs: true})
			var refused *NotProved
			switch {
			case test.want == "not proved":
				if !errors.As(err, &refused) || !strings.Contains(err.Error(), "policies of the node before DNAT (table inet felixlike-hosts chain hosts-prerouting): they differ") {
					t.Errorf("%v", err)
				}
			case err != nil:
				t.Error(err)
			case (len(r.Differences) == 0) != (test.want == "equal"):
				t.Errorf("differences: %v", r.Differences)
			case test.want == "equal" && !slices.ContainsFunc(r.Assumed, func(s string) bool { return strings.Contains(s, preDNATPlace) }):
				t.Errorf("assumed: %q", r.Assumed)
			}
		})
	}
}
