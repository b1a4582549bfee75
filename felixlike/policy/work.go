package policy

// Work counts what an Engine has done since it was made. Tests and benchmarks
// ask by it how cost grows: counts, unlike times, are the same everywhere.
type Work struct {
	// Policies is how many NetworkPolicies were compiled.
	Policies uint64 `json:"policies"`
	// Matches is how many times a selector was tried on labels.
	Matches uint64 `json:"matches"`
	// Visits is how many pods, label sets, namespaces and selections were
	// looked at because another object changed.
	Visits uint64 `json:"visits"`
	// Members is how many times a group counted a member in or out.
	Members uint64 `json:"members"`
	// Listed is how many policies were put into the lists of endpoints, which
	// share them.
	Listed uint64 `json:"listed"`
	// Endpoints is how many endpoints were computed.
	Endpoints uint64 `json:"endpoints"`
}

// Total returns the sum of all counts.
func (w Work) Total() uint64 {
	return w.Policies + w.Matches + w.Visits + w.Members + w.Listed + w.Endpoints
}

// Minus returns what was done since an earlier count.
func (w Work) Minus(earlier Work) Work {
	return Work{
		Policies: w.Policies - earlier.Policies, Matches: w.Matches - earlier.Matches, Visits: w.Visits - earlier.Visits,
		Members: w.Members - earlier.Members, Listed: w.Listed - earlier.Listed, Endpoints: w.Endpoints - earlier.Endpoints,
	}
}

// Work returns what the engine has done so far.
func (e *Engine) Work() Work { return e.work }
