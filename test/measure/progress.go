package measure

// Progress receives the progress of a run.
type Progress interface {
	// Turn begins a turn of a backend, Case a case in it.
	Turn(round, rounds int, backend string)
	Case(name string)
	// Done ends the turn.
	Done()
}
