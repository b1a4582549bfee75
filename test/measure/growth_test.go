package measure

import "testing"

// TestGrowth: a leak shows, noise around a level does not.
func TestGrowth(t *testing.T) {
	at := []float64{0, 1, 2, 3, 4}
	for _, c := range []struct {
		values     []float64
		rise, mean float64
	}{
		{[]float64{5, 6, 7, 8, 9}, 4, 7},
		{[]float64{7, 9, 7, 9, 7}, 0, 7.8},
		{[]float64{1, 1, 1, 1, 1}, 0, 1},
	} {
		if rise, mean := Growth(at, c.values); rise != c.rise || mean != c.mean {
			t.Errorf("%v: rise %v, mean %v; want %v, %v", c.values, rise, mean, c.rise, c.mean)
		}
	}
	if rise, mean := Growth(nil, nil); rise != 0 || mean != 0 {
		t.Error(rise, mean)
	}
}
