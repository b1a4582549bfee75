package policy

// Work counts the operations of an Engine since New. Tests and benchmarks use it to see
// how cost grows: counts, unlike times, are the same on every machine.
type Work struct {
	// Policies is the number of compiled policies.
	Policies uint64 `json:"policies"`
	// Matches is the number of comparisons of a selector with labels.
	Matches uint64 `json:"matches"`
	// Visits is the number of pods, label sets, namespaces and selections that the Engine
	// looked at because another object changed.
	Visits uint64 `json:"visits"`
	// Members is the number of times that a group counted a member in or out.
	Members uint64 `json:"members"`
	// Listed is the number of entries in the lists of policies that endpoints share.
	Listed uint64 `json:"listed"`
	// Endpoints is the number of computed endpoints.
	Endpoints uint64 `json:"endpoints"`
}

// Total returns the sum of all counts.
func (w Work) Total() uint64 {
	return w.Policies + w.Matches + w.Visits + w.Members + w.Listed + w.Endpoints
}

// Minus returns the operations since an earlier count.
func (w Work) Minus(earlier Work) Work {
	return Work{
		Policies: w.Policies - earlier.Policies, Matches: w.Matches - earlier.Matches, Visits: w.Visits - earlier.Visits,
		Members: w.Members - earlier.Members, Listed: w.Listed - earlier.Listed, Endpoints: w.Endpoints - earlier.Endpoints,
	}
}
