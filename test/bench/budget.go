package bench

import (
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/measure"
	"github.com/felixlike/felixlike/test/workloads"
)

// Budget is a limit of cost, with the measured cost.
type Budget struct {
	Backend  string `json:"backend"`
	What     string `json:"what"`
	Limit    string `json:"limit"`
	Measured string `json:"measured"`
	Met      bool   `json:"met"`
}

// policyEngine has budgets like a backend.
const policyEngine = "policy engine"

// limit is a budget for the reference workload.
type limit struct {
	backend string
	what    string
	// value returns the measured value; ok is false without one.
	value func(r *Report, backend string) (v float64, ok bool)
	most  float64
	print func(v float64) string
}

// limits are the budgets of this design. A change is measured from the object,
// a little before the update of the model.
func limits() []limit {
	all := append(nftLimits(), mapsLimits()...)
	for _, backend := range []string{config.IPTablesLegacy, config.IPTablesNFT} {
		all = append(all, iptablesLimits(backend)...)
	}
	return append(append(all, openflowLimits()...), engineLimits()...)
}

// nftLimits are those of the nftables backend.
func nftLimits() []limit {
	const nft = config.NFTables
	all := elementLimits(nft)
	for _, c := range []struct {
		worker.Case
		what string
	}{
		{worker.ForeignRule, "a rule"},
		{worker.ForeignChain, "a chain"},
		{worker.ForeignElement, "an element"},
		{worker.ForeignDispatch, "an entry of a map"},
	} {
		all = append(all, limit{nft, "foreign change of " + c.what + " -> repaired, max", worst(c.Case, func(r *Result) measure.Series { return measure.Series{r.Latency.Max} }), 0.1, seconds})
	}
	all = append(all, limit{nft, "all deleted, from its event to the repair, as a multiple of the slowest first load", func(r *Report, b string) (float64, bool) {
		repaired, loaded := r.Find(b, worker.ForeignAll), r.Find(b, worker.FirstLoad)
		if repaired == nil || loaded == nil {
			return 0, false
		}
		return (repaired.Wall.Median() - repaired.NotifiedWall.Median()) / loaded.Wall.Max(), true
	}, 1, measure.Multiples().Print})
	all = append(all,
		limit{nft, "one rule of one policy changed, CPU", median(worker.RuleChanged, func(r *Result) measure.Series { return r.CPU }), 0.005, seconds},
		limit{nft, "restart with nothing changed, CPU", median(worker.Restart, func(r *Result) measure.Series { return r.CPU }), 0.5, seconds},
		limit{nft, "restart with nothing changed, peak RSS", median(worker.Restart, func(r *Result) measure.Series { return r.PeakRSS }), 120e6, measure.Megabytes().Print},
	)
	return append(append(all, restartWrites(nft)), loadLimits(nft)...)
}

// elementLimits are those of one element that comes or goes.
func elementLimits(backend string) (all []limit) {
	for _, e := range []struct {
		worker.Case
		what string
	}{{worker.ElementAdded, "an element into a set"}, {worker.ElementRemoved, "an element out of a set"}} {
		all = append(all,
			limit{backend, e.what + ", p50", worst(e.Case, func(r *Result) measure.Series { return measure.Series{r.Latency.P50} }), 0.00035, seconds},
			limit{backend, e.what + ", p99", worst(e.Case, func(r *Result) measure.Series { return measure.Series{r.Latency.P99} }), 0.005, seconds},
		)
	}
	return all
}

// mapsLimits are those of the nftables backend with the layout maps.
func mapsLimits() []limit {
	const maps = worker.NFTablesMaps
	all := append(elementLimits(maps),
		limit{maps, "one rule of one policy changed, CPU", median(worker.RuleChanged, func(r *Result) measure.Series { return r.CPU }), 0.0005, seconds},
		limit{maps, "a new connection with the most policies, as a multiple of one without, p50", newConnectionRatio, 1.2, measure.Multiples().Print},
		restartWrites(maps),
	)
	return append(all, loadLimits(maps)...)
}

// newConnectionRatio compares the median times of a new connection at the point with the most policies and at that
// without.
func newConnectionRatio(r *Report, backend string) (float64, bool) {
	if r.Packets == nil || len(r.Packets.Points) == 0 {
		return 0, false
	}
	with := r.Packets.Find(backend, mostPolicies(r.Packets), Connections)
	without := r.Packets.Find(backend, workload.Point{}, Connections)
	if with == nil || without == nil {
		return 0, false
	}
	return with.Latency.P50Rounds.Over(without.Latency.P50Rounds).Median(), true
}

// iptablesLimits are those of the iptables backend in one of its variants.
func iptablesLimits(backend string) []limit {
	saves := func(r *Result) measure.Series { return r.Saves }
	restores := func(r *Result) measure.Series { return r.Restores }
	programs := func(r *Result) measure.Series { return measure.Series{r.Saves.Max() + r.Restores.Max()} }
	all := []limit{
		{backend, "one rule of one policy changed, saves", worst(worker.RuleChanged, saves), 0, measure.Plain().Print},
		{backend, "one rule of one policy changed, restores", worst(worker.RuleChanged, restores), 1, measure.Plain().Print},
		{backend, "an element into a set, programs started", worst(worker.ElementAdded, programs), 0, measure.Plain().Print},
		{backend, "an element out of a set, programs started", worst(worker.ElementRemoved, programs), 0, measure.Plain().Print},
		restartWrites(backend),
	}
	return append(all, loadLimits(backend)...)
}

// openflowLimits are those of the openflow backend.
func openflowLimits() []limit {
	const of = config.OpenFlow
	rss := func(r *Result) measure.Series { return r.PeakRSS }
	answered := func(r *Result, v float64) measure.Series {
		if r.Answered.Count == 0 {
			return nil
		}
		return measure.Series{v}
	}
	answeredP50 := func(r *Result) measure.Series { return answered(r, r.Answered.P50) }
	answeredP99 := func(r *Result) measure.Series { return answered(r, r.Answered.P99) }
	all := []limit{
		{of, "one pod joins a group, to the barrier's reply, p50", worst(worker.ElementAdded, answeredP50), 0.005, seconds},
		{of, "one pod joins a group, to the barrier's reply, p99", worst(worker.ElementAdded, answeredP99), 0.005, seconds},
		{of, "one pod leaves a group, to the barrier's reply, p99", worst(worker.ElementRemoved, answeredP99), 0.005, seconds},
		{of, "first load, peak RSS", worst(worker.FirstLoad, rss), 150e6, measure.Megabytes().Print},
		{of, "restart with nothing changed, peak RSS", worst(worker.Restart, rss), 150e6, measure.Megabytes().Print},
		restartWrites(of),
	}
	return append(all, loadLimits(of)...)
}

// restartWrites is a budget of every backend, and so are loadLimits.
func restartWrites(backend string) limit {
	return limit{
		backend, "restart with nothing changed, writes",
		worst(worker.Restart, func(r *Result) measure.Series { return r.Writes }), 0, measure.Plain().Print,
	}
}

func loadLimits(backend string) []limit {
	return []limit{
		{backend, "first load beside the kernel's tools, wall", func(r *Report, b string) (float64, bool) {
			wall, _ := r.loadRatio(b)
			return wall.Median(), len(wall) > 0
		}, 1.5, measure.Multiples().Print},
		{backend, "first load beside the kernel's tools, CPU", func(r *Report, b string) (float64, bool) {
			_, cpu := r.loadRatio(b)
			return cpu.Median(), len(cpu) > 0
		}, 1.5, measure.Multiples().Print},
	}
}

// engineLimits are those of the policy engine, which no backend has a part in.
func engineLimits() []limit {
	engine := func(name, what string, most float64, print func(float64) string, of func(*EngineResult) measure.Series) limit {
		return limit{policyEngine, name + " with all pods on the node, " + what, func(r *Report, _ string) (float64, bool) {
			found := findEngine(r.Engine, name, workloads.EveryPodLocal)
			if found == nil {
				return 0, false
			}
			return of(found).Median(), true
		}, most, print}
	}
	processCPU := func(r *EngineResult) measure.Series { return r.ProcessCPU }
	return []limit{
		engine("SmallNamespaces", "CPU of the process", 3, seconds, processCPU),
		engine("SmallNamespaces", "peak RSS", 800e6, measure.Megabytes().Print, func(r *EngineResult) measure.Series { return r.PeakRSS }),
		engine("NetpolPerPod", "CPU of the process", 0.5, seconds, processCPU),
	}
}

// worst is about the round with the most, median about that of the rounds.
func worst(c worker.Case, of func(*Result) measure.Series) func(*Report, string) (float64, bool) {
	return overRounds(c, of, measure.Series.Max)
}

func median(c worker.Case, of func(*Result) measure.Series) func(*Report, string) (float64, bool) {
	return overRounds(c, of, measure.Series.Median)
}

func overRounds(c worker.Case, of func(*Result) measure.Series, how func(measure.Series) float64) func(*Report, string) (float64, bool) {
	return func(r *Report, backend string) (float64, bool) {
		found := r.Find(backend, c)
		if found == nil || len(of(found)) == 0 {
			return 0, false
		}
		return how(of(found)), true
	}
}

func seconds(v float64) string { return measure.Seconds(v).Print(v) }

func atMost(l limit) string {
	if l.most == 0 {
		return "none"
	}
	return "<= " + l.print(l.most)
}

// evaluate compares a run of the reference workload with the budgets of the
// backends that took part. Runs of other workloads have none.
func evaluate(r *Report) []Budget {
	if r.Profile.Name != workload.W1 {
		return nil
	}
	var out []Budget
	for _, backend := range append(r.Backends[:len(r.Backends):len(r.Backends)], policyEngine) {
		for _, l := range limits() {
			if l.backend != backend {
				continue
			}
			b := Budget{Backend: backend, What: l.what, Limit: atMost(l), Measured: "not measured"}
			if v, ok := l.value(r, backend); ok {
				b.Measured, b.Met = l.print(v), v <= l.most
			}
			out = append(out, b)
		}
	}
	return out
}
