package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/hosts/boot"
	"github.com/felixlike/felixlike/managers"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/nftables"
)

// HostsStage is the stage of the table with the policies of the node itself.
const HostsStage = "hosts"

// HostsDir is the folder in stateDir for what is known of these policies.
const HostsDir = "hosts"

// hostsTimeout bounds one apply of that table.
const hostsTimeout = 30 * time.Second

// Hosts is the table with the policies of the node itself, the same beside every backend. Without such a policy there is no table.
type Hosts struct {
	// Attempt is called before policies are programmed, with those that the datastore has for the node, Programmed after that, with refused if the kernel does not take all of them. In
	// and after the call without policies (nil) there is no table. An error of Attempt leaves the table as it is.
	Attempt    func(p, wanted *model.HostPolicies) error
	Programmed func(p *model.HostPolicies, refused string)
	// Off reports whether an administrator has turned the policies off.
	Off func() bool

	c        Config
	failsafe model.Failsafe
	// mu is held while one of the table's drivers programs it.
	mu sync.Mutex
	// applied is set once the stage has programmed the table.
	applied atomic.Bool
	// obeyed is set when there is no table because of Off.
	obeyed atomic.Bool
	// last is nil before the stage has run.
	last atomic.Pointer[HostsApplied]
}

// HostsApplied is what the last run of the stage came to.
type HostsApplied struct {
	// Fingerprint identifies the policies that it programmed, "" for none.
	Fingerprint string
	// Fault is why not all of them are programmed, or none removed, "" if there is no fault.
	Fault string
}

// Last returns what the last run of the stage came to. Before the first one, that is a fault.
func (h *Hosts) Last() HostsApplied {
	if last := h.last.Load(); last != nil {
		return *last
	}
	return HostsApplied{Fault: "the agent has not programmed them since it started"}
}

// NewHosts returns the table. The caller sets the functions.
func NewHosts(c Config, failsafe model.Failsafe) *Hosts { return &Hosts{c: c, failsafe: failsafe} }

// Stage returns the stage that programs the table. It holds back no other one.
func (h *Hosts) Stage() Stage {
	table := nftables.New(nftables.Options{Table: nftables.HostsTable, NetNS: h.c.NetNS})
	m := boot.Manager(table, table, h.failsafe, h.c.TrafficMode)
	remove := &remover{table: table}
	return Stage{
		Name: HostsStage, BestEffort: true, Timeout: hostsTimeout, Managers: []managers.Manager{m},
		Invalidate: remove.invalidate, Watch: table.Watch,
		Apply: func(ctx context.Context) (did Applied, err error) {
			h.mu.Lock()
			defer h.mu.Unlock()
			last := HostsApplied{Fault: "the attempt to program them has panicked"}
			defer func() { h.last.Store(&last) }()
			var p *model.HostPolicies
			if did, p, err = h.apply(ctx, m, table, remove); err != nil {
				last.Fault = err.Error()
			} else {
				last = HostsApplied{Fingerprint: p.Fingerprint(), Fault: refusals(did.Refused)}
			}
			return did, err
		},
	}
}

// apply runs the stage. It returns the policies that are programmed.
func (h *Hosts) apply(ctx context.Context, m *managers.HostsManager, table *nftables.Table, remove *remover) (Applied, *model.HostPolicies, error) {
	p := m.InForce()
	if h.off() {
		p = nil
	}
	if err := h.Attempt(p, m.Wanted()); err != nil {
		return Applied{}, nil, err
	}
	if p == nil {
		did, err := remove.apply(ctx)
		if err == nil {
			h.applied.Store(true)
			h.Programmed(nil, "")
		}
		return did, nil, err
	}
	remove.again()
	result, err := table.Apply(ctx)
	if h.off() { // since Apply began
		_, off := remove.apply(ctx)
		return applied(result), nil, errors.Join(err, off)
	}
	if err == nil {
		h.applied.Store(true)
		h.Programmed(p, refusals(result.Refused))
	}
	return applied(result), p, err
}

// Restore programs policies before the stage has run for the first time, nil for no table. It does nothing later, or while they are turned
// off. With missing it does nothing if there is a table.
func (h *Hosts) Restore(ctx context.Context, p *model.HostPolicies, missing bool) (did bool, err error) {
	if h.applied.Load() {
		return false, nil // it does not wait for a stage that runs
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.applied.Load() || h.Off() {
		return false, nil
	}
	table := nftables.New(nftables.Options{Table: nftables.HostsTable, NetNS: h.c.NetNS})
	defer func() { err = errors.Join(err, table.Close()) }()
	s, err := table.Snapshot(ctx)
	if err != nil || missing && s.Exists {
		return false, err
	}
	if p.Empty() {
		if !s.Exists {
			return false, nil
		}
		return true, table.Remove(ctx)
	}
	_, err = boot.Program(ctx, table, p, h.failsafe, h.c.TrafficMode)
	if h.Off() { // since Apply began
		return false, errors.Join(err, table.Remove(ctx))
	}
	return true, err
}

// off asks Off for the stage.
func (h *Hosts) off() bool {
	off := h.Off()
	if off {
		h.obeyed.Store(true)
	}
	return off
}

// ObeyedOff reports whether the stage has found the policies turned off since it was asked last. It then runs again only if somebody tells it.
func (h *Hosts) ObeyedOff() bool { return h.obeyed.Swap(false) }

// Exists reports whether there is a table.
func (h *Hosts) Exists(ctx context.Context) (bool, error) { return HostsExist(ctx, h.c.NetNS) }

// Remove removes the table, and reports whether there was one.
func (h *Hosts) Remove(ctx context.Context) (bool, error) { return RemoveHosts(ctx, h.c.NetNS) }

// HostsExist reports whether there is a table.
func HostsExist(ctx context.Context, netns int) (bool, error) {
	table := nftables.New(nftables.Options{Table: nftables.HostsTable, NetNS: netns})
	s, err := table.Snapshot(ctx)
	return s.Exists, errors.Join(err, table.Close())
}

// RemoveHosts removes the table, and reports whether there was one.
func RemoveHosts(ctx context.Context, netns int) (bool, error) {
	table := nftables.New(nftables.Options{Table: nftables.HostsTable, NetNS: netns})
	s, err := table.Snapshot(ctx)
	if err != nil || !s.Exists {
		return false, errors.Join(err, table.Close())
	}
	return true, errors.Join(table.Remove(ctx), table.Close())
}

// FailsafeOf returns the failsafe ports of a node: those of the settings, and those that pods' traffic, DHCP and the agent need. servers
// are the ports of the API servers that the agent uses.
func FailsafeOf(cfg *config.Effective, servers []uint16) model.Failsafe {
	f := model.Failsafe{In: slices.Clone(cfg.FailsafeIn), Out: slices.Clone(cfg.FailsafeOut)}
	port := func(to *[]model.FailsafePort, protocol model.Protocol, n uint16) {
		if p := (model.FailsafePort{PortRange: model.PortRange{Protocol: protocol, First: n, Last: n}}); !slices.Contains(*to, p) {
			*to = append(*to, p)
		}
	}
	// DHCP to a client and to a server (RFC 2131, RFC 8415).
	port(&f.In, model.UDP, 68)
	port(&f.In, model.UDP, 546)
	port(&f.Out, model.UDP, 67)
	port(&f.Out, model.UDP, 547)
	for _, to := range []*[]model.FailsafePort{&f.In, &f.Out} {
		switch n := TunnelPortOf(&cfg.Config); {
		case cfg.WireGuardInUse() == 0 && cfg.TunnelInUse() == "":
		case n != 0:
			port(to, model.UDP, n)
		default:
			f.GRE = true
		}
	}
	if _, text, err := net.SplitHostPort(cfg.HealthAddress); err == nil {
		if n, err := strconv.ParseUint(text, 10, 16); err == nil {
			port(&f.In, model.TCP, uint16(n))
		}
	}
	for _, n := range servers {
		port(&f.Out, model.TCP, n)
	}
	return f
}

// refusals names what the kernel does not take, "" if there is nothing.
func refusals(all []tables.Refusal) string {
	var texts []string
	for _, r := range all {
		texts = append(texts, fmt.Sprintf("%s %s: %s", r.Object, r.Name, r.Reason))
	}
	return strings.Join(texts, "; ")
}
