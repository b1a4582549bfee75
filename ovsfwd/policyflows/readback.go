package policyflows

import "context"

// Adopt reads which rules have ids other than their hashes in the switch, and gives them
// these ids. It is to be called once, before the flows are programmed for the first time.
func (s *Store) Adopt(ctx context.Context, c Counters) error {
	_, notes, err := readCounters(ctx, c)
	if err != nil {
		return err
	}
	s.Complete()
	s.renumber(s.ids.adopt(notes))
	s.Complete()
	return nil
}

// Hits reads the counters of the rules, in order of their policies. Rules that pass on
// are not counted.
func (s *Store) Hits(ctx context.Context, c Counters) ([]Hits, error) {
	byID := make(map[uint32]*Hits, len(s.rules))
	for id, r := range s.rules {
		if r.installed {
			byID[r.id] = &Hits{RuleID: id, Name: r.spec.Name}
		}
	}
	stats, _, err := readCounters(ctx, c)
	if err != nil {
		return nil, err
	}
	return countHits(stats, byID), nil
}
