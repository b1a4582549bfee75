package driver

import (
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
)

// A pod without its interface is in status, Events and metrics. The agent stays ready: a pod may have deleted
// its interface itself, and must not block a rolling update. New pods can be added: otherwise the pod could
// not be made anew. A pod that the datastore does not have is not named, nor is one before everything is
// programmed, nor one that has another interface.
func TestLostInterfaceIsNamed(t *testing.T) {
	gone, want := sandboxOf("gone", "first"), "has lost its interface veth-gone: it has no network until it is made anew"
	f := startWith(t, Config{
		Stages:         []backend.Stage{drivertest.NewTable(t).Stage()},
		LostInterfaces: func() []model.Attachment { return []model.Attachment{*gone} },
	})
	f.Source.Send(true, drivertest.PodOn("gone", "node1"))
	named := func() bool {
		return slices.ContainsFunc(f.Status().Problems, func(p model.Problem) bool { return p.Object.Kind == "Pod" && strings.Contains(p.Reason, want) })
	}
	if named() {
		t.Error("a pod is named before everything is programmed")
	}
	f.Source.Send(true, datastore.PodDeleted{ID: gone.Pod})
	f.begin(t)
	eventually.True(t, "the agent is ready", func() bool { return missing(t, f) == "" })
	f.Source.Send(true, drivertest.PodOn("gone", "node1"))
	eventually.True(t, "the pod is named", named)
	if why := missing(t, f); why != "" {
		t.Errorf("not ready: %s", why)
	}
	if s, ok := f.scrape(); !ok || s.InterfacesLost != 1 || !s.Ready {
		t.Errorf("metrics %+v", s)
	}
	if notices, err := f.Notices(t.Context()); err != nil || len(notices) != 1 || notices[0].Kind != noticeInterfaceLost {
		t.Errorf("notices %+v, %v", notices, err)
	}
	if err := f.Available(t.Context()); err != nil {
		t.Errorf("no pod can be added: %v", err)
	}
	f.attachSandbox(sandboxOf("gone", "second"))
	eventually.True(t, "a pod with a new interface is not named", func() bool { return !named() })
}
