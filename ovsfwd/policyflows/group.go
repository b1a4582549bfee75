package policyflows

import (
	"net/netip"

	"github.com/felixlike/felixlike/model"
)

// group is a group with the rules that ask it. It is there while it has either
// members or rules.
type group struct {
	id      model.GroupID
	members map[model.Member]struct{}
	users   map[use]struct{}
	// asked counts the users by layer, those for peers and those for named ports.
	asked [layerCount][2]int
}

// everything are the members of the group that stands for any peer.
func everything() []model.Member {
	return []model.Member{
		{Prefix: netip.PrefixFrom(netip.IPv4Unspecified(), 0)},
		{Prefix: netip.PrefixFrom(netip.IPv6Unspecified(), 0)},
	}
}

func (g *group) addUser(u use) {
	if _, has := g.users[u]; !has {
		g.users[u] = struct{}{}
		g.asked[u.rule.layer][kind(u.named)]++
	}
}

func (g *group) removeUser(u use) {
	if _, has := g.users[u]; has {
		delete(g.users, u)
		g.asked[u.rule.layer][kind(u.named)]--
	}
}

// kind is the place of a kind of users in group.asked.
func kind(named bool) int {
	if named {
		return 1
	}
	return 0
}
