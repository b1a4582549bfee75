package felixlike

import (
	"errors"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/model"
)

// TestModelOfUnboundedRates: the model says that no flow bounds rates, so that diff does
// not miss these flows.
func TestModelOfUnboundedRates(t *testing.T) {
	for _, refused := range []error{nil, errors.New("no meters")} {
		table := newFakeTable(t)
		f := startWith(t, Config{Stages: []backend.Stage{table.stage()}, Backend: &fake{name: "fake", stage: table.stage(), unbounded: refused}})
		f.begin(t)
		m, err := f.Model(t.Context())
		if err != nil || m.RatesUnbounded != (refused != nil) {
			t.Errorf("%v: rates unbounded %t, %v", refused, m.RatesUnbounded, err)
		}
		if named := strings.Contains(strings.Join(texts(f.Status().Problems, model.Problem.Error), " "), "no meters"); named != (refused != nil) {
			t.Errorf("%v: status names it %t", refused, named)
		}
	}
}
