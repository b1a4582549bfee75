// Package serviceproxy is the module of the setting serviceProxy: full. It gives Services and EndpointSlices to the engine of package service, and the
// ports that this node serves to the managers. It answers health checks of load balancers, says whether kube-proxy has left something on the node, and
// shows which endpoints are used. The table is programmed by a stage of package backend.
//
//	datastore -> Proxy -> service.Engine -> updates -> managers
//	                            +-> healthCheckNodePorts
//
// It is tested under a driver, and with HTTP.
package serviceproxy

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/service"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// Reasons of Events.
const (
	noticeNotServed = "ServiceNotServed"
	noticeKubeProxy = "KubeProxy"
)

// lookSoon is the time between two looks while kube-proxy has something on the node: the node is ready soon after it is gone.
const lookSoon = 5 * time.Second

// Options are what a Proxy uses.
type Options struct {
	// Node is this node's name.
	Node string
	// NodePortAddresses are the prefixes of the addresses that serve health checks; nil for all.
	NodePortAddresses []netip.Prefix
	// KubeProxy returns what kube-proxy has on this node, each with how to remove it. It is called at the start and every Resync, sooner while there is something.
	KubeProxy func(ctx context.Context) ([]string, error)
	Resync    time.Duration
	// Reaches reports whether a Service of a namespace may lead to an address; nil if to all. Reconsider says when that changes.
	Reaches func(namespace string, a netip.Addr) bool
	// Prefixes are those of cluster IPs beyond the datastore's, if none may be outside; else nil.
	Prefixes []netip.Prefix
	// Bridge is this node's bridge under openflow, without what comes with the model.
	Bridge pipeline.Node
	Log    *slog.Logger
}

// Proxy is the module. All but Module and Services belongs to the loop.
type Proxy struct {
	Options
	view    *driver.View
	engine  *service.Engine
	sources map[model.ObjectRef]string
	health  *health
	// found is what kube-proxy has on this node.
	found atomic.Pointer[[]string]
}

// New returns the module of a driver that is made next.
func New(v *driver.View, o Options) *Proxy {
	p := &Proxy{Options: o, view: v, engine: service.New(o.Node), sources: map[model.ObjectRef]string{}}
	p.engine.Limit(o.Reaches)
	p.engine.SetPrefixes(o.Prefixes)
	p.health = newHealth(o.NodePortAddresses, p.healthy, o.Log)
	return p
}

// Module returns the functions of the module.
func (p *Proxy) Module() driver.Module {
	return driver.Module{OnEvent: p.onEvent, Updates: p.updates, Run: p.run, Served: p.served, Notices: p.notices, ObjectProblems: p.problems}
}

// Reconsider has the module ask Options.Reaches again about endpoints for which changed returns true. The loop calls it.
func (p *Proxy) Reconsider(changed func(namespace string, a netip.Addr) bool) {
	p.engine.Reconsider(changed)
}

func (p *Proxy) onEvent(e datastore.Event) {
	switch e := e.(type) {
	case datastore.NodeSet:
		p.engine.SetNode(e.Node)
	case datastore.NodeDeleted:
		p.engine.DeleteNode(e.Name)
	case datastore.ServiceCIDRsSet:
		if p.Prefixes != nil {
			p.engine.SetPrefixes(slices.Concat(p.Prefixes, e.Prefixes))
		}
	case datastore.ServiceSet:
		p.sources[serviceRef(e.Service.Namespace, e.Service.Name)] = e.Source
		p.engine.SetService(e.Service)
	case datastore.ServiceDeleted:
		delete(p.sources, serviceRef(e.Namespace, e.Name))
		p.engine.DeleteService(e.Namespace, e.Name)
	case datastore.EndpointSliceSet:
		p.engine.SetEndpointSlice(e.Slice)
	case datastore.EndpointSliceDeleted:
		p.engine.DeleteEndpointSlice(e.Namespace, e.Name)
	}
}

func serviceRef(namespace, name string) model.ObjectRef {
	return model.ObjectRef{Kind: "Service", Namespace: namespace, Name: name}
}

// updates returns nothing until all Services are known: the first ServiceHealthUpdate says so to the managers, which keep the node's table until then.
func (p *Proxy) updates() []model.Update {
	if !p.view.SourceSynced() {
		return nil
	}
	all := p.engine.Flush()
	for _, u := range all {
		if u, ok := u.(model.ServiceHealthUpdate); ok {
			p.health.set(u.All)
		}
	}
	return all
}

func (p *Proxy) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return p.health.run(ctx) })
	g.Go(func() error { return p.look(ctx) })
	return g.Wait()
}

// look looks for kube-proxy until ctx ends.
func (p *Proxy) look(ctx context.Context) error {
	for {
		found, err := p.KubeProxy(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			p.Log.Warn("whether kube-proxy has more rules on this node is not known", "error", err)
		}
		if err == nil || len(found) > 0 {
			p.found.Store(&found)
		}
		wait := p.Resync
		if len(found) > 0 { // somebody takes it away now
			wait = min(wait, lookSoon)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// kubeProxy returns what kube-proxy had on this node at the last look.
func (p *Proxy) kubeProxy() []string {
	if found := p.found.Load(); found != nil {
		return *found
	}
	return nil
}

func (p *Proxy) notices() (all []datastore.Notice) {
	for _, what := range p.kubeProxy() {
		all = append(all, datastore.Notice{
			Problem: model.Problem{Object: model.NodeRef(p.Node), Field: "serviceProxy", Reason: "kube-proxy serves Services as well: " + what}, Kind: noticeKubeProxy,
		})
	}
	return all
}

// problems returns the Services of which something is not served. All nodes have the same, but for ports that are in use here.
func (p *Proxy) problems() (all []datastore.Notice) {
	add := func(known datastore.Known, problems []model.Problem) {
		for _, problem := range problems {
			problem.Source = p.sources[problem.Object]
			all = append(all, datastore.Notice{Problem: problem, Kind: noticeNotServed, Known: known})
		}
	}
	add(datastore.KnownToAll, p.engine.Problems())
	add(datastore.KnownHere, p.health.problems())
	return all
}

var errNotProgrammed = errors.New("Services are not programmed")

// healthy returns an error unless this node serves Services.
func (p *Proxy) healthy(ctx context.Context) (err error) {
	asked := p.view.Do(ctx, func() {
		if !p.view.Begun() || len(p.kubeProxy()) > 0 {
			err = errNotProgrammed
		}
	})
	return errors.Join(asked, err)
}
