// Package seeded checks properties on random draws with a fixed seed.
//
// So a test's result depends on the change under test, not on luck. `make test-random`
// uses fresh seeds and prints them. The package is for tests only. Tests may not call
// rapid.Check themselves (TestAllDrawsAreSeeded).
package seeded

import (
	"cmp"
	"flag"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// SeedVariable names the environment variable that overrides FixedSeed. The flag
// -rapid.seed would do, but packages without property tests reject it.
const SeedVariable = "FELIXLIKE_TEST_SEED"

// FixedSeed is the seed unless SeedVariable or -rapid.seed sets another.
const FixedSeed = 1

// Check checks a property as rapid.Check does. If it fails, rapid prints the seed
// that repeats the failure.
func Check(t *testing.T, prop func(*rapid.T)) {
	t.Helper()
	check(t, flag.Lookup("rapid.checks").DefValue, prop)
}

// Checks is Check with a number of draws, unless -rapid.checks sets another one. Tests that
// run side by side each have their own number.
func Checks(t *testing.T, n int, prop func(*rapid.T)) {
	t.Helper()
	check(t, strconv.Itoa(n), prop)
}

// number is held while a check has its number in rapid's flag.
var number sync.Mutex

func check(t *testing.T, n string, prop func(*rapid.T)) {
	t.Helper()
	if err := setSeed(); err != nil {
		t.Fatal(err)
	}
	number.Lock()
	f := flag.Lookup("rapid.checks")
	restore := f.Value.String()
	if restore == f.DefValue {
		if err := f.Value.Set(n); err != nil {
			number.Unlock()
			t.Fatal(err)
		}
	}
	// rapid reads the flag before the first draw.
	begun := sync.OnceFunc(func() {
		defer number.Unlock()
		if err := f.Value.Set(restore); err != nil {
			t.Error(err)
		}
	})
	defer begun()
	rapid.Check(t, func(rt *rapid.T) {
		begun()
		prop(rt)
	})
}

// Rand returns a source of draws for a test that is not a property. The name keeps sources of
// one test apart.
func Rand(t testing.TB, name string) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv(SeedVariable), strconv.Itoa(FixedSeed)), 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", SeedVariable, err)
	}
	hash := fnv.New64a()
	hash.Write([]byte(name))
	return rand.New(rand.NewPCG(seed, hash.Sum64()))
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
