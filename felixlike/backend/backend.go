// Package backend makes, tries and removes the backends, which judge packets of pods by
// policy. It owns the interface Backend with its three implementations (nftables.go,
// iptables.go, openflow.go), their managers, and the Stage by which the driver programs
// them. It knows neither the driver nor the datastore, so that felixctl can link it
// without the agent. Tests send packets through real tables (marks_test.go), have the
// kernel refuse objects (refusal_test.go), and try every backend (try_test.go).
package backend

import (
	"context"

	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/managers/grants"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/rules"
)

// Backend judges packets by policy: in nftables, in iptables, or in the switch.
type Backend interface {
	// Name is one of config.BackendsInForce.
	Name() string
	// Place is where the backend judges packets.
	Place() Place
	// Why returns the reason of the choice, if the node's state decided it.
	Why() string
	// Stage programs the desired state of the backend's managers.
	Stage() Stage
	// Renderer names the chains.
	Renderer() *rules.Renderer
	Follower
	Observer
	Leftovers
}

// Follower is the part of a backend that follows other parts of the dataplane. The driver
// calls it while the backend's stage does not run.
type Follower interface {
	// PrepareBeside is called before a handover: the named backend is in force while this one is
	// programmed.
	PrepareBeside(other string)
	// Activate is called once the backend is in force alone.
	Activate()
	// Forwarded is called after the forwarding flows were programmed, and reports whether
	// the backend's stage has to run because of them.
	Forwarded(f managers.Forwarding) bool
}

// Observer is the part of a backend that reads what the dataplane does with packets. It may
// be called while the stage runs.
type Observer interface {
	// Hits adds the counters of rules to the existing entries. policies has all policies of
	// the node.
	Hits(ctx context.Context, counted Counted, policies []*model.Policy) error
	// Denials reports denied packets, Logs the packets that rules with Log decide.
	// model.LogsUpdate turns the latter on and off.
	Denials() Denials
	Logs() Reports
	// Unbounded returns the reason if the rate of new connections of pods should have a
	// limit and has none, or nil.
	Unbounded() error
	// Layout returns what the configured layout does not say. It must not be called while managers run.
	Layout() Layout
}

// Layout is how a backend holds NetworkPolicies, as far as its configuration does not say.
type Layout struct {
	// InForce is config.LayoutRules or config.LayoutMaps; empty if the backend has one layout. Maps is the use of its maps, nil with LayoutRules.
	InForce string
	Maps    *grants.Use
	// FellBack is why all are in chains of rules although the layout has maps, or nil.
	FellBack error
	// Kept are the lists of policies in maps that would not come there now, because they have few rules.
	Kept []string
}

// Leftovers is the part of a backend that finds and removes what it programmed.
type Leftovers interface {
	// Left reports whether a backend of this kind has left anything here.
	Left(ctx context.Context) (bool, error)
	// Remove removes all objects with the names of this kind of backend, also those of an
	// earlier agent. It leaves the objects that the backend named keep uses too.
	Remove(ctx context.Context, keep string) error
	// Close closes connections and files. The programmed state stays.
	Close() error
}

// common has the fields of all backends, and the default methods of netfilter backends.
type common struct {
	name     string
	place    Place
	why      string
	stage    Stage
	renderer *rules.Renderer
}

// Name implements Backend.
func (c *common) Name() string { return c.name }

// Place implements Backend.
func (c *common) Place() Place { return c.place }

// Why implements Backend.
func (c *common) Why() string { return c.why }

// Stage implements Backend.
func (c *common) Stage() Stage { return c.stage }

// Renderer implements Backend.
func (c *common) Renderer() *rules.Renderer { return c.renderer }

// PrepareBeside implements Follower: the backend shares nothing with others.
func (c *common) PrepareBeside(string) {}

// Forwarded implements Follower: the backend has no forwarding flows to follow.
func (c *common) Forwarded(managers.Forwarding) bool { return false }

// Unbounded implements Observer: the backend limits no rates.
func (c *common) Unbounded() error { return nil }

// Layout implements Observer: the backend has one layout.
func (c *common) Layout() Layout { return Layout{} }
