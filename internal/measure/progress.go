package measure

// Progress is told how far a run has come.
type Progress interface {
	// Turn begins a turn of a backend, Case a case in it.
	Turn(round, rounds int, backend string)
	Case(name string)
	// Done ends the turn.
	Done()
}
