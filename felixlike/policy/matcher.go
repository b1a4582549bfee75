package policy

import "github.com/felixlike/felixlike/felixlike/policy/label"

// matcher stores label sets and selectors, and matches them.
type matcher struct {
	work      *Work
	labelSets *label.Sets
	selectors label.Selectors
}

func (m *matcher) matches(s *label.Selector, labels *label.Set) bool {
	m.work.Matches++
	return s.Matches(labels)
}
