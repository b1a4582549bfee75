package driver_test

import (
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/driver/moduletest"
	"github.com/felixlike/felixlike/model"
)

// TestModuleEvents: a module gets each change of the datastore, and its updates come to the stages with those of the same batch.
func TestModuleEvents(t *testing.T) {
	var v driver.View
	var pending []model.Update
	m := driver.Module{
		OnEvent: func(e datastore.Event) {
			if e, ok := e.(datastore.ServiceDeleted); ok {
				pending = append(pending, model.ServicePortRemove{ID: model.ServicePortID{Namespace: e.Namespace, Name: e.Name}})
			}
		},
		Updates: func() []model.Update {
			all := pending
			pending = nil
			return all
		},
	}
	table := drivertest.NewTable(t)
	f := moduletest.Start(t, driver.Config{Stages: []backend.Stage{table.Stage()}}, &v, m)
	f.Begin(t, datastore.ServiceDeleted{Namespace: "shop", Name: "web"}, datastore.ServiceDeleted{Namespace: "shop", Name: "db"})
	var got []string
	for _, u := range table.Received() {
		if u, ok := u.(model.ServicePortRemove); ok {
			got = append(got, u.ID.Name)
		}
	}
	if len(got) != 2 || got[0] != "web" || got[1] != "db" {
		t.Errorf("the stage got %v", got)
	}
}
