package backend

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/denied"
	"github.com/felixlike/felixlike/ovsfwd/openflow"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
	"github.com/felixlike/felixlike/ovsfwd/policyflows"
	"github.com/felixlike/felixlike/rules"
	"github.com/felixlike/felixlike/tables"
)

// applyPolicies programs the policy flows, with the meters that bound new connections.
func (p *switchPolicy) applyPolicies(ctx context.Context) (tables.Result, error) {
	var done tables.Result
	err := p.rates.Around(ctx, p.link.Conn, func() (err error) {
		done, err = p.applyLogged(ctx)
		return err
	})
	return done, err
}

// applyReported programs the policy flows. Flows that report need a meter, which is added
// before them and removed after them. If a step of this fails, policy is programmed without
// reports.
func (p *switchPolicy) applyReported(ctx context.Context) (tables.Result, error) {
	if p.store.Reported() {
		p.metered = true
		err := p.link.Conn.SetMeter(ctx, policyflows.ReportMeter, rules.ReportsPerSecond)
		if lost := p.link.Conn.Err(); lost != nil {
			return tables.Result{}, fmt.Errorf("openflow connection lost: %w", lost)
		}
		if err != nil {
			p.unreport(err)
		}
	}
	reported := p.store.Reported()
	done, err := p.policies.Apply(ctx)
	if p.store.Reported() && err != nil && !policyflows.AboutRates(err) && ctx.Err() == nil && p.link.Conn.Err() == nil {
		p.unreport(errors.Join(err, errRefusesReports))
		done, err = p.policies.Apply(ctx)
	} else if reported && !p.store.Reported() {
		p.unreport(errRefusesReports)
	}
	if err == nil && p.metered && !p.store.Reported() {
		// A switch without support for meters has none to remove.
		p.metered = p.link.Conn.DeleteMeters(ctx, []uint32{policyflows.ReportMeter}) != nil && p.link.Conn.Err() != nil
	}
	return done, err
}

var errRefusesReports = errors.New("the switch refuses flows that report")

// unreport makes the next apply program policy without reports, and notes the reason.
func (p *switchPolicy) unreport(err error) {
	p.store.Report(false)
	p.store.Complete()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unreported = err
}

// removeMeters removes all meters of this backend, if they exist.
func (p *switchPolicy) removeMeters(ctx context.Context) error {
	conn, err := openflow.Dial(ctx, p.link.Socket)
	if err != nil {
		return err
	}
	// Switches without support for meters refuse these messages.
	_ = conn.DeleteMeters(ctx, append(policyflows.LogMeters(), policyflows.ReportMeter))
	if pods, err := policyflows.FindRateMeters(ctx, conn); err == nil {
		_ = conn.DeleteMeters(ctx, slices.Sorted(maps.Keys(pods)))
	}
	return errors.Join(conn.Err(), conn.Close())
}

// switchDenials reports packets that the switch denies: the switch sends them over a separate
// connection. The host's table reports packets to addresses without a Service.
type switchDenials struct {
	policy *switchPolicy
	// host is the config of the host's table.
	host Config
	try  scratch
}

// Check implements Denials.
func (d switchDenials) Check(ctx context.Context) error {
	return errors.Join(d.policy.checkReports(ctx), d.try.reports(ctx, d.host))
}

// Listen implements Denials.
func (d switchDenials) Listen(ctx context.Context, got func(denied.Report)) (<-chan struct{}, error) {
	ctx, cancel := context.WithCancel(ctx)
	host, err := denied.ListenNFLOG(ctx, d.host.NetNS, rules.ReportGroup, got)
	if err != nil {
		cancel()
		return nil, err
	}
	return d.policy.listenToo(ctx, cancel, host, policyflows.ReportID, func(in openflow.PacketIn) {
		r := denied.Report{At: time.Now(), Direction: policyflows.ReportDirection(in.Table)}
		var err error
		if r.Packet, err = denied.Payload(in.Frame); err == nil && r.Direction != 0 {
			got(r)
		}
	})
}

// Skipped implements Denials.
func (d switchDenials) Skipped(ctx context.Context) (uint64, error) {
	host, err := skipped(ctx, d.policy.renderer, func(ctx context.Context, add func(of rules.Counter, packets uint64)) error {
		return countDrops(ctx, d.policy.host, d.policy.renderer, add)
	})
	if err != nil {
		return 0, err
	}
	conn, err := openflow.Dial(ctx, d.policy.link.Socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	inSwitch, err := conn.MeterDropped(ctx, policyflows.ReportMeter)
	return host + inSwitch, err
}

// Refused implements Denials.
func (d switchDenials) Refused() error {
	d.policy.mu.Lock()
	defer d.policy.mu.Unlock()
	return d.policy.unreported
}

// checkReports adds the meter and a flow that reports to the switch, in a place that no
// packet reaches.
func (p *switchPolicy) checkReports(ctx context.Context) error {
	p.mu.Lock()
	p.unreported = nil
	p.mu.Unlock()
	conn, err := openflow.Dial(ctx, p.link.Socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	return tryActions(ctx, conn, policyflows.ReportMeter, rules.ReportsPerSecond, policyflows.ReportActions())
}

// tryActions adds a meter and a flow with actions that report to the switch, and removes the
// flow.
func tryActions(ctx context.Context, conn *openflow.Conn, meter, perSecond uint32, actions []openflow.Action) error {
	if err := conn.SetMeter(ctx, meter, perSecond); err != nil {
		return fmt.Errorf("the switch has no meters, which limit the rate of reports (needs Open vSwitch 2.10, and Linux 4.18 for the kernel's datapath): %w", err)
	}
	flow := openflow.FlowMod{
		Command: openflow.Add, Cookie: pipeline.TouchOwner << 48, Key: "a flow that tries whether flows can report",
		Flow: openflow.Flow{Table: pipeline.TableNowhere, Priority: 2, Actions: actions},
	}
	if err := conn.Change(ctx, flow); err != nil {
		return errors.Join(err, conn.DeleteMeters(ctx, []uint32{meter}))
	}
	flow.Command = openflow.DeleteCookie
	return conn.Change(ctx, flow)
}

// listenToo is listen beside a listener to the host's table, which ends with cancel. Both end
// when one of them does: without it, packets would be left out silently.
func (p *switchPolicy) listenToo(ctx context.Context, cancel context.CancelFunc, host <-chan struct{}, id uint16, got func(openflow.PacketIn)) (<-chan struct{}, error) {
	ended, err := p.listen(ctx, id, got)
	if err != nil {
		cancel()
		<-host
		return nil, err
	}
	both := make(chan struct{})
	go func() {
		defer close(both)
		select {
		case <-ended:
		case <-host:
		}
		cancel()
		<-ended
		<-host
	}()
	return both, nil
}

// listen receives the packets that flows send to an id.
func (p *switchPolicy) listen(ctx context.Context, id uint16, got func(openflow.PacketIn)) (<-chan struct{}, error) {
	conn, err := openflow.Dial(ctx, p.link.Socket)
	if err != nil {
		return nil, err
	}
	err = conn.Listen(ctx, id, policyflows.ReportLength, got)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-ctx.Done():
		case <-conn.Done():
		}
		_ = conn.Close()
	}()
	return ended, nil
}
