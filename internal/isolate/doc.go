// Package isolate has the two parts that the quarantines of all drivers share.
//
// Retry waits between two tries of a refused object, twice as long after each refusal.
// Search finds the refused objects of a batch if the refusal names none: it halves the
// batch, and tries the halves.
//
// The package knows no kernel and no kind of object. Its callers decide which pods
// are closed because of a refused object. Its tests check properties on random batches.
package isolate
