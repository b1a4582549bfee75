package managers

import "github.com/felixlike/felixlike/model"

// Forwarding is what the forwarding flows are, as they were set last.
type Forwarding interface {
	// Forwards reports whether they are those of the attachment as it is.
	Forwards(a *model.Attachment) bool
	// Led are the tiers that packets are led to.
	Led() Tiers
}

// Tiers says which ordered tiers have policies. Forwarding leads packets through the tables of these alone.
type Tiers struct {
	// AdminIngress is set if a policy of the admin tier judges ingress, OrderedEgress if one of the admin or the baseline tier judges
	// egress.
	AdminIngress, OrderedEgress bool
}

// cover reports whether t has all tiers that are needed.
func (t Tiers) cover(needed Tiers) bool {
	return (t.AdminIngress || !needed.AdminIngress) && (t.OrderedEgress || !needed.OrderedEgress)
}

func (t Tiers) and(o Tiers) Tiers {
	return Tiers{t.AdminIngress && o.AdminIngress, t.OrderedEgress && o.OrderedEgress}
}

// tierUse has the policies of ordered tiers.
type tierUse struct {
	adminIngress, orderedEgress map[model.PolicyID]bool
}

func newTierUse() tierUse {
	return tierUse{map[model.PolicyID]bool{}, map[model.PolicyID]bool{}}
}

// update takes updates of policies, and ignores others.
func (t tierUse) update(u model.Update) {
	switch u := u.(type) {
	case model.PolicyUpdate:
		tier := u.Policy.ID.Tier
		note(t.adminIngress, u.Policy.ID, tier == model.TierAdmin && len(u.Policy.Ingress) > 0)
		note(t.orderedEgress, u.Policy.ID, tier != model.TierNetworkPolicy && len(u.Policy.Egress) > 0)
	case model.PolicyRemove:
		delete(t.adminIngress, u.ID)
		delete(t.orderedEgress, u.ID)
	}
}

func (t tierUse) tiers() Tiers { return Tiers{len(t.adminIngress) > 0, len(t.orderedEgress) > 0} }

func note(judging map[model.PolicyID]bool, id model.PolicyID, judges bool) {
	if judges {
		judging[id] = true
	} else {
		delete(judging, id)
	}
}
