package bench

// find returns the first that is meant, or nil.
func find[T any](all []T, meant func(*T) bool) *T {
	for i := range all {
		if meant(&all[i]) {
			return &all[i]
		}
	}
	return nil
}
