package driver

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/managers/grants"
	"github.com/felixlike/felixlike/model"
)

// TestModelOfUnboundedRates: the model says that no flow bounds rates, so that diff does
// not miss these flows.
func TestModelOfUnboundedRates(t *testing.T) {
	for _, refused := range []error{nil, errors.New("no meters")} {
		table := drivertest.NewTable(t)
		f := startWith(t, Config{Stages: []backend.Stage{table.Stage()}, Backend: &drivertest.Backend{NameIs: "fake", StageIs: table.Stage(), UnboundedIs: refused}})
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

// TestLayoutFellBack: status and an Event say why a node does not use maps, and diff compares with rules.
func TestLayoutFellBack(t *testing.T) {
	for _, fellBack := range []error{nil, errors.New("more than 5 grants")} {
		table := drivertest.NewTable(t)
		f := startWith(t, Config{
			Stages: []backend.Stage{table.Stage()}, Backend: &drivertest.Backend{NameIs: "fake", StageIs: table.Stage(), FellBack: fellBack, LayoutInForce: config.LayoutMaps, Maps: &grants.Use{Grants: 3, Bound: 5, Pods: 2}},
			Modules: []Module{{Served: func(m *control.Model) { m.Settings = control.Settings{NFTablesLayout: config.LayoutMaps} }}},
		})
		f.begin(t)
		m, err := f.Model(t.Context())
		if err != nil || (m.Settings.NFTablesLayout == config.LayoutRules) != (fellBack != nil) {
			t.Errorf("%v: layout %s, %v", fellBack, m.Settings.NFTablesLayout, err)
		}
		if named := strings.Contains(strings.Join(texts(f.Status().Problems, model.Problem.Error), " "), "until the agent restarts: more than 5 grants"); named != (fellBack != nil) {
			t.Errorf("%v: status names it %t", fellBack, named)
		}
		if l := f.Status().Layout; l == nil || *l != (control.Layout{InForce: config.LayoutMaps, Grants: 3, GrantsBound: 5, Pods: 2}) {
			t.Errorf("layout %+v", l)
		}
		notices, err := f.Notices(t.Context())
		if named := slices.ContainsFunc(notices, func(n datastore.Notice) bool { return n.Kind == noticeFellBack && n.Object.Kind == "Node" }); err != nil || named != (fellBack != nil) {
			t.Errorf("%v: Events %+v, %v", fellBack, notices, err)
		}
	}
}
