package grants

import (
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// identity is a set of groups that addresses are in.
type identity struct {
	key    string
	groups []model.GroupID
	number tables.Number
	// holders counts the addresses and ranges that have it.
	holders int
}

// identities are those in use.
type identities struct {
	numbers numbers
	byKey   map[string]*identity
	ledger  *ledger
}

func newIdentities(l *ledger) *identities {
	return &identities{numbers: newNumbers(), byKey: map[string]*identity{}, ledger: l}
}

// hold returns the identity of a sorted list of groups, nil without groups. Its holder releases it.
func (s *identities) hold(groups []model.GroupID) *identity {
	if len(groups) == 0 {
		return nil
	}
	var b strings.Builder
	for _, g := range groups {
		b.WriteString(string(g) + "\x00") // no identifier of a group has a zero byte
	}
	i := s.byKey[b.String()]
	if i == nil {
		i = &identity{key: b.String(), groups: slices.Clone(groups)}
		i.number = s.numbers.take(i.key)
		s.byKey[i.key] = i
		s.ledger.enter(i)
	}
	i.holders++
	return i
}

func (s *identities) release(i *identity) {
	if i == nil {
		return
	}
	if i.holders--; i.holders == 0 {
		delete(s.byKey, i.key)
		s.numbers.release(i.number)
		s.ledger.leave(i)
	}
}

// with returns a sorted list with or without the group.
func with(groups []model.GroupID, id model.GroupID, has bool) []model.GroupID {
	at, found := slices.BinarySearch(groups, id)
	switch {
	case found == has:
		return groups
	case has:
		return slices.Insert(slices.Clone(groups), at, id)
	}
	return slices.Delete(slices.Clone(groups), at, at+1)
}
