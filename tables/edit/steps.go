package edit

// Op is the kind of a Step.
type Op uint8

// The kinds of steps.
const (
	Delete Op = iota + 1
	Insert
	Replace
)

// Step is one change of a list that is edited by position.
type Step struct {
	Op Op
	// At is the position, from zero, in the list as the steps before this one
	// have left it. An insertion at the length of the list appends.
	At int
	// New is the index in the new list of the inserted or replacing element.
	New int
}

// Steps returns the script as changes by position, to be made one after the
// other. A deletion and an insertion at one place become a replacement.
func (s Script) Steps() []Step {
	var steps []Step
	gone := s.Deletes
	at := 0
	for i := 0; i <= len(s.Kept); {
		first := i
		for i < len(s.Kept) && s.Kept[i] < 0 {
			i++
		}
		added := i - first
		// The elements to delete before the next one that stays.
		removed := len(gone)
		if i < len(s.Kept) {
			removed = 0
			for removed < len(gone) && gone[removed] < s.Kept[i] {
				removed++
			}
		}
		gone = gone[removed:]
		for k := range max(added, removed) {
			switch {
			case k < added && k < removed:
				steps = append(steps, Step{Replace, at, first + k})
				at++
			case k < added:
				steps = append(steps, Step{Insert, at, first + k})
				at++
			default:
				steps = append(steps, Step{Op: Delete, At: at})
			}
		}
		at++ // the one that stays
		i++
	}
	return steps
}
