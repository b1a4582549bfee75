// Package egress is the module of Egresses, the objects that give packets of pods to the outside an address of a node: it elects the nodes with the
// addresses (election), writes the status of the objects (status), and says which addresses this node has not taken. Rules, routes and addresses are
// programmed by stages of package backend and by ovsfwd/hostnet. It is tested under a driver here, and with packets and an API server in test/e2e.
package egress

import (
	"context"
	"log/slog"
	"net/netip"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/dynamic"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/cluster"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/egress/election"
	"github.com/felixlike/felixlike/felixlike/leases"
	"github.com/felixlike/felixlike/felixlike/policy"
	"github.com/felixlike/felixlike/felixlike/policy/compile"
	"github.com/felixlike/felixlike/model"
)

// Addresses are the addresses of Egresses on this node (hostnet.Addresses).
type Addresses interface {
	election.Kernel
	// Has reports whether this node has an address.
	Has(a netip.Addr) bool
	// Refused returns why this node has not taken addresses.
	Refused() map[netip.Addr]error
}

// Options are what an Egress uses.
type Options struct {
	Addresses Addresses
	// API is the API server, nil if the datastore is none: then no node is elected, and no status is written.
	API dynamic.Interface
	// Node is this node's name, Namespace that of the agents.
	Node, Namespace string
	Log             *slog.Logger
}

// elector elects the nodes with the addresses (election.Election).
type elector interface {
	// Wanted takes all Egresses, with the generation of the last Leases.
	Wanted(all []model.EgressAddress, generation uint64)
	// Run delivers the Leases, and after each change, until ctx ends; none before Wanted has had an Egress with an elected node.
	Run(ctx context.Context, report func(model.EgressLeases)) error
}

// Egress is the module. All but Module belongs to the loop.
type Egress struct {
	Options
	view     *driver.View
	election elector
	// generation is that of the last Leases.
	generation uint64
	// listed is set once the Egresses of the datastore are known, changed if the election has to get them, elected once the elected
	// nodes are known, or none was elected when everything else was known.
	listed, changed, elected bool
}

// New returns the module of a driver that is made next.
func New(v *driver.View, o Options) *Egress {
	e := &Egress{Options: o, view: v}
	if o.API != nil {
		all := leases.New(o.API, o.Namespace)
		e.election = election.New(election.Options{Leases: all, Kernel: o.Addresses, Node: o.Node, Log: o.Log, Timing: election.DefaultTiming()}, all.API)
	}
	return e
}

// Module returns the functions of the module.
func (e *Egress) Module() driver.Module {
	m := driver.Module{ObjectProblems: e.problems}
	if e.election != nil {
		m.Begin, m.Run, m.OnUpdate, m.OnFlush, m.Needs = e.begin, e.run, e.onUpdate, e.onFlush, e.needs
	}
	return m
}

// begin says that nodes are elected.
func (e *Egress) begin() { e.view.Policy().Egresses().SetLeases(map[netip.Addr]model.EgressLease{}) }

// run takes part in the election, and writes status.
func (e *Egress) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return e.election.Run(ctx, func(l model.EgressLeases) {
			e.view.Post(ctx, func() {
				e.generation, e.changed, e.elected = l.Generation, true, true
				e.view.Change(func(p *policy.Engine) { p.Egresses().SetLeases(l.Leases) })
			})
		})
	})
	if e.API != nil {
		g.Go(func() error { return e.writeStatus(ctx) })
	}
	return g.Wait()
}

func (e *Egress) onUpdate(u model.Update, _ uint64) {
	if _, ok := u.(model.EgressesUpdate); ok {
		e.changed = true
	}
}

// onFlush hands the Egresses to the election: once the datastore has listed them, and after each change.
func (e *Egress) onFlush(map[model.PolicyID]bool, uint64) {
	if !e.view.SourceSynced() || e.listed && !e.changed {
		return
	}
	e.listed, e.changed = true, false
	e.elected = e.elected || !e.view.Policy().Egresses().ElectHolders()
	e.election.Wanted(e.view.Policy().Egresses().Addresses(), e.generation)
}

// needs says what is missing until the first apply.
func (e *Egress) needs() string {
	if e.elected || !e.view.SourceSynced() {
		return ""
	}
	return "the nodes with the addresses of Egresses are not known"
}

// problems returns the Egresses whose address this node has not taken.
func (e *Egress) problems() (all []datastore.Notice) {
	refused := e.Addresses.Refused()
	for _, at := range e.view.Policy().Egresses().Addresses() {
		if why := refused[at.Address]; why != nil {
			p := model.Problem{Object: at.Object, Field: "spec.egressIP", Reason: why.Error() + compile.EgressDrops}
			if at.Object == (antrea.ID{Kind: antrea.KindNetNamespace, Name: at.Object.Name}).Ref() {
				p.Field = "egressIPs"
			}
			all = append(all, datastore.Notice{
				Problem: p,
				Kind:    cluster.NotUnderstood, Known: datastore.KnownToSome,
			})
		}
	}
	return all
}
