package isolate

// Search finds the units of a batch that are refused, if the refusal names none of them. A
// unit is what can be tried alone, as a chain or a set.
//
// It tries all units at once, and halves a refused batch until one unit is left. It never
// takes back accepted units. Each refused unit costs at most two tries for each doubling of
// the number of units.
type Search[U any] struct {
	// Admit includes units in the next try. Hold leaves them out: they stay as they are.
	Admit, Hold func([]U)
	// Try programs all that is admitted.
	Try func() error
	// IsRefusal reports whether an error of Try is a refusal of the admitted units. Any
	// other error ends the search.
	IsRefusal func(error) bool
	// Named quarantines the units that a refusal names. It returns the units of the batch
	// that are left, and false if the refusal names none. It is nil if no refusal does.
	Named func(batch []U, refusal error) (rest []U, named bool, err error)
	// Isolate quarantines a unit that is refused alone, and programs everything else.
	Isolate func(unit U, refusal error) error
}

// Run tries the units and quarantines the refused ones. refusal is nil, or that of a try of
// them all at once, which Run does not repeat.
func (s *Search[U]) Run(units []U, refusal error) error {
	_, err := s.run(units, refusal)
	return err
}

// run reports whether a try was refused.
func (s *Search[U]) run(units []U, refusal error) (refused bool, err error) {
	if len(units) == 0 {
		return false, nil
	}
	if refusal == nil || len(units) == 1 {
		s.Admit(units)
		refusal = s.Try()
		if refusal == nil || !s.IsRefusal(refusal) {
			return false, refusal
		}
		if s.Named != nil {
			rest, named, err := s.Named(units, refusal)
			if err != nil {
				return true, err
			}
			if named {
				_, err := s.run(rest, nil)
				return true, err
			}
		}
		if len(units) == 1 {
			return true, s.Isolate(units[0], refusal)
		}
		s.Hold(units)
	}
	half := len(units) / 2
	if refused, err = s.run(units[:half], nil); err != nil {
		return true, err
	}
	if refused {
		// The fault of the whole batch may have been in this half alone.
		refusal = nil
	}
	_, err = s.run(units[half:], refusal)
	return true, err
}
