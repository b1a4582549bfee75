package felixlike

import (
	"context"
	"io"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/counters"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/packetlog"
	"github.com/felixlike/felixlike/felixlike/serviceproxy"
	"github.com/felixlike/felixlike/internal/sockets"
	"github.com/felixlike/felixlike/model"
)

// api answers the control socket: the driver, and modules that have answers of their own.
type api struct {
	*driver.Driver
	*packetlog.Denied
	*packetlog.History
	*packetlog.Log
	*counters.Counters
	view *driver.View
	// connections lists the connections of pods that an enforcement point has allowed. It is nil where nothing tells them from others.
	connections func(ctx context.Context, place backend.Place) ([]control.Connection, error)
	// services is nil if the agent serves no Services.
	services *serviceproxy.Proxy
}

// newAPI returns an api whose driver is not set yet. log gets the lines of rules with Log.
func newAPI(log io.Writer) *api {
	v := &driver.View{}
	denied := packetlog.NewDenied(v)
	return &api{Denied: denied, History: packetlog.NewHistory(denied), Log: packetlog.NewLog(v, log), Counters: counters.New(v), view: v}
}

// modules returns the modules of the answers.
func (a *api) modules() []driver.Module {
	return []driver.Module{a.Log.Module(), a.History.Module(), a.Counters.Module()}
}

// Connections implements control.Agent.
func (a *api) Connections(ctx context.Context) ([]control.Connection, error) {
	if a.connections == nil {
		return nil, nil
	}
	var place backend.Place
	if err := a.view.Do(ctx, func() { place = a.view.Backend().Place() }); err != nil {
		return nil, err
	}
	return a.connections(ctx, place)
}

// Sockets implements control.Agent.
func (a *api) Sockets(context.Context) ([]control.Socket, error) {
	list, err := sockets.List()
	processes, all := sockets.Processes(), make([]control.Socket, 0, len(list))
	for _, s := range list {
		all = append(all, control.Socket{Protocol: model.Protocol(s.Protocol), Local: s.Local, Peer: s.Peer, UID: s.UID, Process: processes[s.Inode].Name})
	}
	return all, err
}

// Services implements control.Agent.
func (a *api) Services(ctx context.Context, name string) (control.Services, error) {
	if a.services == nil {
		return control.Services{Node: a.view.Node(), Services: []control.Service{}}, nil
	}
	return a.services.Services(ctx, name)
}
