package livebench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/internal/measure"
	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/internal/rootsocket"
	"github.com/felixlike/felixlike/model"
)

// Config configures a run on a live node. By itself a run only reads: the agent's
// answers, and the kernel's counters of the agent and of ovs-vswitchd.
type Config struct {
	// Socket is the agent's control socket.
	Socket string
	// Watch is the length of a turn, Rounds their number.
	Watch  time.Duration
	Rounds int
	// From and To are pods of this node, between which connections to a TCP port are
	// opened, if they are set.
	From, To model.PodID
	Port     uint16
	// Switch names backends that the node is brought to, in turn; in the end it is
	// brought back. Nothing is changed without.
	Switch   []string
	Command  string
	Progress measure.Progress
}

func (c *Config) check() error {
	switch {
	case c.Rounds < 1:
		return fmt.Errorf("%d rounds: must be at least 1", c.Rounds)
	case c.Watch < time.Second:
		return fmt.Errorf("watched for %s: must be a second at least", c.Watch)
	case (c.From == model.PodID{}) != (c.To == model.PodID{}):
		return errors.New("connections need both of the pods")
	case c.From != model.PodID{} && c.Port == 0:
		return errors.New("connections need a port")
	}
	return nil
}

// Watch looks at a live node for a while.
func Watch(ctx context.Context, cfg Config) (_ *Report, err error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	l, err := openLive(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer l.close()
	r := &Report{
		Version: ReportVersion, Command: cfg.Command, Started: time.Now().UTC().Truncate(time.Second), Rounds: cfg.Rounds,
		Machine: measure.ThisMachine(ctx), Backends: cfg.Switch, Live: &l.report,
	}
	if len(cfg.Switch) == 0 {
		r.Backends = []string{l.first}
	} else {
		// Also after an error, or an interrupt.
		defer func() { err = errors.Join(err, l.bringBack(ctx)) }()
	}
	begin := time.Now()
	for round := range cfg.Rounds {
		for _, b := range r.Backends {
			cfg.Progress.Turn(round+1, cfg.Rounds, b)
			err := l.turn(ctx, b)
			cfg.Progress.Done()
			if err != nil {
				return nil, fmt.Errorf("round %d, %s: %w", round+1, b, err)
			}
		}
	}
	r.Took, r.Machine.LoadAfter = time.Since(begin).Seconds(), measure.LoadAverage()
	for i := range l.report.Results {
		if c := l.connections[i].Latency(); c.Count > 0 {
			l.report.Results[i].Connections = c
		}
	}
	return r, nil
}

// live is a node that is looked at.
type live struct {
	Config
	agent *control.Client
	// first is the backend that it had.
	first         string
	pid, vswitchd int
	client        *namespace.Namespace
	target        netip.AddrPort
	report        Live
	// connections are those of the report's results, in their order.
	connections []*measure.Latencies
}

func openLive(ctx context.Context, cfg Config) (_ *live, err error) {
	l := &live{Config: cfg, agent: control.NewClient(cfg.Socket)}
	status, err := l.agent.Status(ctx)
	if err != nil {
		return nil, err
	}
	m, err := l.agent.Model(ctx)
	if err != nil {
		return nil, err
	}
	if l.pid, err = l.agent.PID(ctx); err != nil {
		return nil, err
	}
	socket := filepath.Join(m.Settings.OVSRunDir, m.Settings.Bridge+".mgmt")
	if l.vswitchd, err = rootsocket.Owner(ctx, socket); err != nil {
		return nil, fmt.Errorf("ovs-vswitchd at %s: %w", socket, err)
	}
	l.first = status.Backend
	l.report = Live{
		Node: status.Node, Watched: cfg.Watch.Seconds(), Datastore: status.Datastore, Switched: len(cfg.Switch) > 0,
	}
	if status.Underlay != nil {
		l.report.Datapath = status.Underlay.Datapath
	}
	if cfg.From == (model.PodID{}) {
		return l, nil
	}
	l.report.From, l.report.To, l.report.Port = cfg.From.String(), cfg.To.String(), int(cfg.Port)
	from, err := addressOf(m, cfg.From)
	if err != nil {
		return nil, err
	}
	to, err := addressOf(m, cfg.To)
	if err != nil {
		return nil, err
	}
	if l.client, err = podNamespace(from); err != nil {
		return nil, fmt.Errorf("pod %s: %w", cfg.From, err)
	}
	l.target = netip.AddrPortFrom(to, cfg.Port)
	return l, nil
}

// addressOf returns the address of a pod of the cluster, an IPv4 one if it has one.
func addressOf(m control.Model, id model.PodID) (netip.Addr, error) {
	for _, p := range m.Pods {
		if p.ID == id && len(p.Addresses) > 0 {
			return slices.MinFunc(p.Addresses, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() }), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("pod %s: the agent knows no address of it", id)
}

func (l *live) close() {
	if l.client != nil {
		l.client.Close()
	}
}

// bringBack brings the node back to the backend that it had. A change that did not end
// in time goes on without us: until it is over, the agent refuses the next.
func (l *live) bringBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeTimeout)
	defer cancel()
	for {
		err := l.agent.SetBackend(ctx, l.first)
		if err == nil {
			return nil
		}
		select {
		case <-time.After(returnRetry):
		case <-ctx.Done():
			return fmt.Errorf("the node had backend %s, and could not be brought back to it (felixctl backend set %s): %w", l.first, l.first, err)
		}
	}
}

// turn brings the node to a backend, if requested, and watches it.
func (l *live) turn(ctx context.Context, backend string) error {
	r, connections := l.resultOf(backend)
	if len(l.Switch) > 0 {
		l.Progress.Case("change")
		if err := l.change(ctx, backend, r); err != nil {
			return err
		}
	}
	l.Progress.Case("watch")
	before, err := l.look(ctx)
	if err != nil {
		return err
	}
	if err := l.wait(ctx, connections); err != nil {
		return err
	}
	after, err := l.look(ctx)
	if err != nil {
		return err
	}
	if after.status.Backend != backend {
		return fmt.Errorf("another program changed the backend to %s", after.status.Backend)
	}
	r.add(before, after)
	l.report.Since = since(after.metrics, backend)
	return nil
}

// change brings the node to a backend, and records the time unless the backend was
// in force. An interrupt does not end it: the agent would continue the change, and might
// begin it only after the return to the first backend.
func (l *live) change(ctx context.Context, backend string, r *Result) error {
	status, err := l.agent.Status(ctx)
	if err != nil {
		return err
	}
	begin := time.Now()
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), changeTimeout)
	defer cancel()
	if err := l.agent.SetBackend(whole, backend); err != nil {
		return err
	}
	if status.Backend != backend {
		r.Handover = append(r.Handover, time.Since(begin).Seconds())
	}
	return ctx.Err()
}

// resultOf returns where the results of a backend are kept.
func (l *live) resultOf(backend string) (*Result, *measure.Latencies) {
	i := slices.IndexFunc(l.report.Results, func(f Result) bool { return f.Backend == backend })
	if i < 0 {
		i = len(l.report.Results)
		l.report.Results, l.connections = append(l.report.Results, Result{Backend: backend}), append(l.connections, measure.NewLatencies())
	}
	return &l.report.Results[i], l.connections[i]
}

// wait lets the time of a turn pass, and opens connections if it is to.
func (l *live) wait(ctx context.Context, into *measure.Latencies) error {
	end := time.NewTimer(l.Watch)
	defer end.Stop()
	if l.client == nil {
		select {
		case <-end.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	pace := time.NewTicker(time.Second / knocksPerSecond)
	defer pace.Stop()
	var all []time.Duration
	for {
		select {
		case <-end.C:
			return into.Record(all)
		case <-ctx.Done():
			return ctx.Err()
		case <-pace.C:
			conn, took, err := measure.Dial(ctx, l.client, l.target)
			if err != nil {
				return fmt.Errorf("connect %s to %s: %w", l.From, l.To, err)
			}
			all = append(all, took)
			// A reset leaves no port in TIME_WAIT.
			if err := errors.Join(conn.SetLinger(0), conn.Close()); err != nil {
				return err
			}
		}
	}
}

// liveLook is a live node at a moment.
type liveLook struct {
	machine       measure.CPUUsage
	agent, daemon measure.ProcessUsage
	status        control.Status
	metrics       scraped
}

func (l *live) look(ctx context.Context) (s liveLook, err error) {
	if s.status, err = l.agent.Status(ctx); err != nil {
		return s, err
	}
	if s.metrics, err = scrape(ctx, l.pid, s.status.Health); err != nil {
		return s, err
	}
	if s.machine, err = measure.CPUNow(); err != nil {
		return s, err
	}
	if s.agent, err = measure.ProcessUsageOf(l.pid); err != nil {
		return s, fmt.Errorf("agent: %w", err)
	}
	if s.daemon, err = measure.ProcessUsageOf(l.vswitchd); err != nil {
		return s, fmt.Errorf("ovs-vswitchd: %w", err)
	}
	return s, nil
}

// add adds a round: the differences between two looks.
func (f *Result) add(before, after liveLook) {
	wall := after.machine.At.Sub(before.machine.At)
	cpus := func(d time.Duration) float64 { return d.Seconds() / wall.Seconds() }
	agent, daemon := after.agent.CPU-before.agent.CPU, after.daemon.CPU-before.daemon.CPU
	f.AgentCPU, f.SwitchCPU = append(f.AgentCPU, cpus(agent)), append(f.SwitchCPU, cpus(daemon))
	f.CPU = append(f.CPU, cpus(after.machine.Worked(before.machine, agent+daemon)))
	f.AgentRSS, f.AgentPeakRSS = append(f.AgentRSS, float64(after.agent.RSS)), append(f.AgentPeakRSS, float64(after.agent.Peak))
	f.SwitchRSS, f.SwitchPeakRSS = append(f.SwitchRSS, float64(after.daemon.RSS)), append(f.SwitchPeakRSS, float64(after.daemon.Peak))
	grown := func(name string, labels ...string) float64 {
		return after.metrics.sum(name, labels...) - before.metrics.sum(name, labels...)
	}
	applies := func(kind string) (count, mean float64) {
		labels := applyLabels(f.Backend, kind)
		if count = grown(applyMetric+"_count", labels...); count > 0 {
			mean = grown(applyMetric+"_sum", labels...) / count
		}
		return count, mean
	}
	changes, change := applies("delta")
	if f.Changes = append(f.Changes, changes); changes > 0 {
		f.ChangeWall = append(f.ChangeWall, change)
	}
	checks, check := applies("full")
	if f.Checks = append(f.Checks, checks); checks > 0 {
		f.CheckWall = append(f.CheckWall, check)
	}
	f.Writes = append(f.Writes, grown("felixlike_writes_total"))
	f.Repairs = append(f.Repairs, grown("felixlike_drift_repaired_total"))
	f.Endpoints, f.Policies, f.Groups = len(after.status.Endpoints), len(after.status.Policies), after.status.Groups
	f.Rules, f.Elements = int(after.metrics.sum("felixlike_rules")), int(after.metrics.sum("felixlike_set_elements"))
	f.Flows = int(after.metrics.sum("felixlike_flows"))
}

// applyMetric is the histogram of the times of stages.
const applyMetric = "felixlike_apply_duration_seconds"

// applyLabels are those of the stage that programs policy for a backend.
func applyLabels(backend, kind string) []string {
	stage := backend
	if backend == config.OpenFlow {
		stage = backend + "-policy"
	}
	return []string{`stage="` + stage + `"`, `kind="` + kind + `"`}
}

// since returns the agent's histograms since its start.
func since(m scraped, backend string) []Timing {
	var all []Timing
	for _, h := range []struct {
		what, metric string
		labels       []string
	}{
		{"change programmed by " + backend, applyMetric, applyLabels(backend, "delta")},
		{"full check by " + backend, applyMetric, applyLabels(backend, "full")},
		{"object learned of -> policy in force", "felixlike_policy_programming_duration_seconds", nil},
		{"pod added: waited for its policy", "felixlike_cni_wait_seconds", nil},
	} {
		t := Timing{What: h.what, Count: int64(m.sum(h.metric+"_count", h.labels...))}
		if t.Count > 0 {
			t.Mean = m.sum(h.metric+"_sum", h.labels...) / float64(t.Count)
			t.P50, t.P99 = m.quantile(h.metric, 0.5, h.labels...), m.quantile(h.metric, 0.99, h.labels...)
		}
		all = append(all, t)
	}
	return all
}
