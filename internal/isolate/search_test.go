package isolate

import (
	"errors"
	"maps"
	"math/bits"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/felixlike/felixlike/internal/seeded"
)

var (
	errRefused = errors.New("refused")
	errBroken  = errors.New("broken")
)

// machine accepts sets of units, or refuses a whole set because of some of them.
type machine struct {
	t *rapid.T
	// faulty units are always refused, conflicting ones only together with the other unit.
	faulty    map[int]bool
	conflicts map[int]int
	// names are the faulty units that a refusal names.
	names map[int]bool
	// breaksAt is the try from which the machine is broken; 0: none.
	breaksAt, tries int

	admitted, programmed, isolated map[int]bool
}

func drawMachine(t *rapid.T, units []int) *machine {
	m := &machine{
		t: t, faulty: map[int]bool{}, conflicts: map[int]int{}, names: map[int]bool{},
		admitted: map[int]bool{}, programmed: map[int]bool{}, isolated: map[int]bool{},
	}
	if len(units) == 0 {
		return m
	}
	some := rapid.SliceOfN(rapid.SampledFrom(units), 0, 4)
	for _, u := range some.Draw(t, "faulty") {
		m.faulty[u] = true
	}
	if rapid.Bool().Draw(t, "names") {
		for _, u := range some.Draw(t, "named") {
			m.names[u] = m.faulty[u]
		}
	}
	for _, u := range some.Draw(t, "conflicts") {
		if other := rapid.SampledFrom(units).Draw(t, "conflict"); other != u {
			m.conflicts[u] = other
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "breaks") == 0 {
		m.breaksAt = rapid.IntRange(1, 6).Draw(t, "at")
	}
	return m
}

// refuses reports whether the machine refuses the admitted units.
func (m *machine) refuses() bool {
	for u := range m.admitted {
		if other, conflict := m.conflicts[u]; m.faulty[u] || conflict && m.admitted[other] {
			return true
		}
	}
	return false
}

func (m *machine) try() error {
	m.tries++
	switch {
	case m.breaksAt != 0 && m.tries > m.breaksAt:
		m.t.Fatalf("try %d after an error that is no refusal", m.tries)
	case m.breaksAt == m.tries:
		return errBroken
	case m.refuses():
		return errRefused
	}
	for u := range m.programmed {
		if !m.admitted[u] {
			m.t.Fatalf("unit %d was accepted, and is taken back", u)
		}
	}
	m.programmed = maps.Clone(m.admitted)
	return nil
}

func (m *machine) quarantine(u int) {
	if m.programmed[u] {
		m.t.Fatalf("unit %d is quarantined after it was accepted", u)
	}
	delete(m.admitted, u)
	m.isolated[u] = true
}

func (m *machine) search() *Search[int] {
	return &Search[int]{
		Admit: func(units []int) {
			for _, u := range units {
				m.admitted[u] = true
			}
		},
		Hold: func(units []int) {
			for _, u := range units {
				delete(m.admitted, u)
			}
		},
		Try:       m.try,
		IsRefusal: func(err error) bool { return errors.Is(err, errRefused) },
		Named: func(batch []int, _ error) ([]int, bool, error) {
			named := false
			for _, u := range batch {
				if m.admitted[u] && m.names[u] {
					m.quarantine(u)
					named = true
				}
			}
			return slices.DeleteFunc(slices.Clone(batch), func(u int) bool { return m.isolated[u] }), named, nil
		},
		Isolate: func(u int, refusal error) error {
			if !errors.Is(refusal, errRefused) {
				m.t.Fatalf("unit %d is quarantined because of %v", u, refusal)
			}
			m.quarantine(u)
			if m.refuses() {
				m.t.Fatalf("without unit %d the machine refuses %v", u, m.admitted)
			}
			return nil
		},
	}
}

// TestSearch: a search quarantines every faulty unit and one of two conflicting units, programs all
// others, and takes no accepted unit back.
func TestSearch(t *testing.T) {
	seeded.Check(t, func(t *rapid.T) {
		var units []int
		for u := range rapid.IntRange(0, 40).Draw(t, "units") {
			units = append(units, u)
		}
		m := drawMachine(t, units)
		var known error
		if rapid.Bool().Draw(t, "known to be refused") {
			maps.Insert(m.admitted, maps.All(asSet(units)))
			if m.refuses() {
				known = errRefused
			}
			clear(m.admitted)
		}
		err := m.search().Run(units, known)
		if m.breaksAt != 0 && m.tries == m.breaksAt {
			if !errors.Is(err, errBroken) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range units {
			switch other, conflict := m.conflicts[u]; {
			case m.faulty[u] && !m.isolated[u]:
				t.Errorf("faulty unit %d is not quarantined", u)
			case m.isolated[u] == m.programmed[u]:
				t.Errorf("unit %d: quarantined %t, programmed %t", u, m.isolated[u], m.programmed[u])
			case m.isolated[u] && !m.faulty[u] && !m.hasRival(u):
				t.Errorf("unit %d is quarantined for no reason", u)
			case conflict && m.programmed[u] && m.programmed[other]:
				t.Errorf("units %d and %d are both programmed", u, other)
			}
		}
		if most := 1 + 2*len(m.isolated)*(bits.Len(uint(len(units)))+1); m.tries > most {
			t.Errorf("%d tries for %d refused of %d units, at most %d", m.tries, len(m.isolated), len(units), most)
		}
	})
}

// hasRival reports whether the unit is refused together with another one.
func (m *machine) hasRival(u int) bool {
	_, conflict := m.conflicts[u]
	for _, other := range m.conflicts {
		conflict = conflict || other == u
	}
	return conflict
}

func asSet(units []int) map[int]bool {
	set := map[int]bool{}
	for _, u := range units {
		set[u] = true
	}
	return set
}

// TestSearchForNothing: a refusal that is gone by the time of the search concerns no unit.
func TestSearchForNothing(t *testing.T) {
	tried := 0
	s := Search[int]{
		Admit: func([]int) {}, Hold: func([]int) {},
		Try: func() error { tried++; return nil },
		Isolate: func(u int, _ error) error {
			t.Errorf("unit %d is quarantined", u)
			return nil
		},
	}
	for _, units := range [][]int{nil, {1}, {1, 2, 3, 4, 5}} {
		if err := s.Run(units, errRefused); err != nil {
			t.Error(err)
		}
	}
	if tried == 0 {
		t.Error("nothing was tried")
	}
}
