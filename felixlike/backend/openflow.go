package backend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/panics"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables/nftables"
)

const (
	// PolicyStage is the stage of the backend in the switch.
	PolicyStage = "openflow-policy"
	// removeTimeout bounds the removal from a switch that may hang.
	removeTimeout = 15 * time.Second
)

// switchPolicy is the backend in the switch. It programs policy flows, over its own
// connection, and the host's table.
type switchPolicy struct {
	common
	denials  Denials
	logs     Reports
	link     Link
	daemon   *vswitchd.Client
	store    *policyflows.Store
	policies *policyflows.Programmer
	manager  *managers.SwitchPolicyManager
	host     *nftables.Table
	// unsettled is set while the datapath may have cached flows of the old policy.
	unsettled bool
	// metered is set while the switch may have the meter of reports.
	metered bool
	// logMetered is set while the switch may have the meters of rules with Log. logMeters is the connection over
	// which they were added.
	logMetered bool
	logMeters  *openflow.Conn
	rates      *policyflows.Rates
	answers    *answers
	// adopted is set once the store has the ids of the rules in the switch.
	adopted bool
	// lost gets the reason when the connection ends.
	lost chan struct{}

	mu sync.Mutex
	// unreported is the reason if denied packets are not reported although reports are on.
	unreported error
	// logged has the rules with Log by id, unlogged is the reason if they do not report
	// although reports are on.
	logged   map[uint32]rules.LogKey
	unlogged error
}

func newOpenFlow(c Config, try scratch) *switchPolicy {
	flows := openflow.NewFlowTable(pipeline.PolicyOwner, pipeline.Version)
	store := policyflows.New(policyflows.Options{Flows: flows, BoundRates: true})
	p := &switchPolicy{
		store: store, metered: true, logMetered: true, rates: policyflows.NewRates(store), lost: make(chan struct{}, 1), answers: newAnswers(c.Switch.ManagementSocket()),
		link: Link{Socket: c.Switch.ManagementSocket(), Flows: flows}, policies: policyflows.NewProgrammer(store, flows),
		daemon: vswitchd.New(c.Switch.RunDir, c.Switch.DatapathType()), host: nftables.New(nftables.Options{Table: nftables.HostTable, NetNS: c.NetNS}),
	}
	flows.Last(policyflows.JudgedKey, func(ctx context.Context) error {
		err := p.daemon.WaitRevalidators(ctx, pipeline.Touch(p.link.Conn))
		if errors.Is(err, vswitchd.ErrAwaitsFlows) {
			return nil // all flows come into force at once
		}
		return err
	})
	p.link.Lost = func(error) {
		select {
		case p.lost <- struct{}{}:
		default: // a reason is there already
		}
	}
	policies, r, all := switchManagers(c, store, p.host)
	p.manager = policies
	c.Name = config.NFTables // for the host's table
	p.denials, p.logs = switchDenials{p, c, try}, switchLogs{p, nflogLogs{c, try}}
	after := HostStage
	if c.TrafficMode != model.Encap {
		after = SendersStage // before the routes: by them packets leave past the tunnel, and the host's table keeps their sources
	}
	p.common = common{name: config.OpenFlow, place: InSwitch, renderer: r, stage: Stage{
		Name: PolicyStage, After: after, Required: true, Managers: all, Timeout: policyTimeout,
		Apply: p.apply, Invalidate: p.invalidate, Watch: p.watch,
	}}
	return p
}

// Activate implements Follower: while another backend is in force, the table needs no guard.
func (p *switchPolicy) Activate() { p.host.SetGuard(rules.HostGuard(model.GatewayPort)) }

// Forwarded implements Follower.
func (p *switchPolicy) Forwarded(f managers.Forwarding) bool { return p.manager.Forwarded(f) }

// Denials implements Observer.
func (p *switchPolicy) Denials() Denials { return p.denials }

// Logs implements Observer.
func (p *switchPolicy) Logs() Reports { return p.logs }

// Unbounded implements Observer.
func (p *switchPolicy) Unbounded() error { return p.rates.Unbounded() }

// apply programs the host's table, on which the switch relies, and the policy flows. The new
// policy is in force only when the datapath uses no cached flows of the old one.
func (p *switchPolicy) apply(ctx context.Context) (Applied, error) {
	host, err := p.host.Apply(ctx)
	all := applied(host)
	if err != nil {
		return all, err
	}
	if err := p.link.Connect(ctx); err != nil {
		return all, err
	}
	if !p.adopted {
		if err := p.store.Adopt(ctx, p.link.Conn); err != nil {
			return all, fmt.Errorf("read the ids of rules in the switch: %w", err)
		}
		p.adopted = true
	}
	policies, err := p.applyPolicies(ctx)
	policies.Rules = 0 // they are flows
	if err == nil && p.store.Rejects() {
		p.answers.setPods(p.manager.MACs())
	}
	all = all.and(policies)
	all.Full = host.FullRead && policies.FullRead
	all.Flows = p.link.Flows.Len()
	p.unsettled = p.unsettled || policies.Messages > 0
	if err == nil {
		began := time.Now()
		all.Pending, err = p.settle(ctx)
		all.Settling = time.Since(began)
		if !p.manager.Led() {
			// The stage runs again after the forwarding flows change, and then waits for the cached ones.
			all.Pending, p.unsettled = true, true
		}
	}
	return all, err
}

// settle returns when no packet follows old policy flows, or reports that this is pending:
// a waiting switch uses cached flows until the stage of flowRestore. The barrier ensures
// that the programmed switch is the running one, because forwarding flows come next.
func (p *switchPolicy) settle(ctx context.Context) (pending bool, err error) {
	if !p.unsettled {
		return false, p.link.Conn.Barrier(ctx)
	}
	err = p.daemon.WaitRevalidators(ctx, pipeline.Touch(p.link.Conn))
	p.unsettled = err != nil
	if errors.Is(err, vswitchd.ErrAwaitsFlows) {
		return true, p.link.Conn.Barrier(ctx)
	}
	return false, err
}

func (p *switchPolicy) invalidate() {
	p.host.Invalidate()
	p.link.Reread()
}

// Hits implements Observer. It reads the counters of flows over a separate
// connection, and those of the rules in the host's table.
func (p *switchPolicy) Hits(ctx context.Context, counted Counted, policies []*model.Policy) error {
	conn, err := openflow.Dial(ctx, p.link.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	keys := switchRules(policies)
	all, err := policyflows.Count(ctx, conn, slices.Collect(maps.Keys(keys)))
	for _, h := range all {
		counted.addHits(keys[h.RuleID], h)
	}
	if err != nil {
		return err
	}
	// Packets of pods to their own node are judged in the host's table, by the ordered tiers.
	ordered := slices.DeleteFunc(slices.Clone(policies), func(p *model.Policy) bool { return p.ID.Tier == model.TierNetworkPolicy })
	_, err = countRules(ctx, p.host, newCounterKeys(p.renderer, ordered).addTo(counted))
	if _, asked := counted[DeniedKey(model.Ingress)]; err != nil || !asked {
		return err
	}
	denied, err := policyflows.CountDenied(ctx, conn)
	for _, d := range denied {
		key := DeniedKey(d.Direction)
		key.Rule += " " + d.Flow
		counted[key] = control.RuleHits{Connections: d.Packets}
	}
	return err
}

// watch notices foreign changes of the host's table and of the policy flows, and
// the end of the connection.
func (p *switchPolicy) watch(ctx context.Context, changed func()) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return panics.Guard(func() error { return p.host.Watch(ctx, changed) })
	})
	g.Go(func() error {
		return panics.Guard(func() error { return p.link.Flows.Watch(ctx, changed) })
	})
	g.Go(func() error {
		return panics.Guard(func() error { return p.answers.run(ctx) })
	})
	g.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-p.lost:
				changed()
			}
		}
	})
	return g.Wait()
}

// Left implements Leftovers. It reports whether there are policy flows, forwarding flows that
// lead to them, or the host's table.
func (p *switchPolicy) Left(ctx context.Context) (bool, error) {
	if s, err := p.host.Snapshot(ctx); err != nil || s.Exists {
		return s.Exists, err
	}
	conn, err := openflow.Dial(ctx, p.link.Socket)
	if NoSwitch(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer conn.Close()
	policy, err := conn.Dump(ctx, pipeline.PolicyOwner)
	if err != nil || len(policy) > 0 {
		return len(policy) > 0, err
	}
	place, err := leadsTo(ctx, conn)
	return place == InSwitch, err
}

// Remove implements Leftovers. It removes all policy flows, the connections of their zone,
// and the host's table. If no switch runs, there are neither flows nor connections.
func (p *switchPolicy) Remove(ctx context.Context, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	err := p.removeFlows(ctx)
	if NoSwitch(err) {
		err = nil
	}
	return errors.Join(err, p.host.Remove(ctx))
}

func (p *switchPolicy) removeFlows(ctx context.Context) error {
	for _, owner := range []uint16{pipeline.PolicyOwner, pipeline.AssociationOwner, pipeline.AffinityOwner} {
		none := Link{Socket: p.link.Socket, Flows: openflow.NewFlowTable(owner, pipeline.Version)}
		_, err := none.Apply(ctx)
		none.Close()
		if err != nil {
			return err
		}
	}
	if err := p.open(ctx); err != nil {
		return err
	}
	if err := p.removeMeters(ctx); err != nil {
		return err
	}
	if err := p.removeGroups(ctx); err != nil {
		return err
	}
	for _, zone := range []uint16{pipeline.Zone, pipeline.MovedZone, pipeline.ServiceZone} {
		if err := p.daemon.FlushZone(ctx, zone); err != nil {
			return fmt.Errorf("delete the connections of the pipeline: %w", err)
		}
	}
	return nil
}

// removeGroups removes the groups of Services. Flows that use them are gone: packets take another way.
func (p *switchPolicy) removeGroups(ctx context.Context) error {
	conn, err := openflow.Dial(ctx, p.link.Socket)
	if err != nil {
		return err
	}
	err = conn.Bundle(ctx, func(yield func(openflow.FlowMod, error) bool) {
		for _, g := range pipeline.ServiceGroups() {
			if !yield(openflow.FlowMod{Command: openflow.DeleteGroup, Group: g}, nil) {
				return
			}
		}
	})
	return errors.Join(err, conn.Close())
}

// open adds flows that let all packets pass in a switch with forwarding flows that lead to the
// removed policy flows.
func (p *switchPolicy) open(ctx context.Context) error {
	conn, err := openflow.Dial(ctx, p.link.Socket)
	if err != nil {
		return err
	}
	err = conn.Bundle(ctx, func(yield func(openflow.FlowMod, error) bool) {
		for _, change := range pipeline.OpenWithoutPolicy() {
			if !yield(change, nil) {
				return
			}
		}
	})
	return errors.Join(err, conn.Close())
}

// Close implements Leftovers.
func (p *switchPolicy) Close() error {
	p.link.Close()
	return p.host.Close()
}
