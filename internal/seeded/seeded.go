// Package seeded checks properties on random draws, the same draws at each run.
//
// A change then fails or passes for what it is, not for its luck. `make test-random`
// draws anew, with a seed that it prints. It is for tests alone, which may not call
// rapid.Check themselves (TestNobodyDrawsFreely).
package seeded

import (
	"cmp"
	"flag"
	"os"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// SeedVariable names the environment variable with another seed than the fixed one:
// packages that do not draw refuse the flag -rapid.seed.
const SeedVariable = "FELIXLIKE_TEST_SEED"

// FixedSeed is the seed where neither the variable nor -rapid.seed says another.
const FixedSeed = 1

// Check checks a property as rapid.Check does. If it fails, rapid prints the seed
// that repeats the failure.
func Check(t *testing.T, prop func(*rapid.T)) {
	t.Helper()
	if err := setSeed(); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, prop)
}

// setSeed sets rapid's seed once.
var setSeed = sync.OnceValue(func() error {
	seed := flag.Lookup("rapid.seed")
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f == seed })
	if given {
		return nil
	}
	return seed.Value.Set(cmp.Or(os.Getenv(SeedVariable), strconv.Itoa(FixedSeed)))
})
