package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/measure"
	"github.com/felixlike/felixlike/test/workloads"
)

// Text writes the report as aligned tables.
func (r *Report) Text(w io.Writer) error { return r.document().WriteText(w) }

// Markdown writes the report as a page.
func (r *Report) Markdown(w io.Writer) error { return r.document().WriteMarkdown(w) }

// JSON writes the report as Decode reads it.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(struct {
		Warning string `json:"warning,omitempty"`
		*Report
	}{r.Machine.Warning(), r})
}

func (r *Report) document() *measure.Document {
	d := &measure.Document{Title: r.title()}
	if warning := r.Machine.Warning(); warning != "" {
		d.Text = append(d.Text, "Uncertain: "+warning+".")
	}
	if s := r.summary(); len(s.Rows) > 0 {
		d.Sections = append(d.Sections, s)
	}
	if len(r.Results) > 0 {
		d.Sections = append(d.Sections, measure.Section{Heading: "Workload", Text: []string{
			r.Profile.String() + ". Endpoints share no list of policies; members of groups are pods of other nodes; IPv4.",
			turns(r),
		}})
	}
	for _, s := range []measure.Section{r.loads(), r.changes(), r.foreign(), r.idle(), r.engine(), r.budgets()} {
		if len(s.Rows) > 0 {
			d.Sections = append(d.Sections, s)
		}
	}
	if len(r.Results) > 0 {
		d.Sections = append(d.Sections, r.notes())
	}
	if r.Enforcement != nil {
		d.Sections = append(d.Sections, r.enforcement())
	}
	if r.Packets != nil {
		d.Sections = append(d.Sections, r.packets()...)
	}
	d.Sections = append(d.Sections, r.Machine.Section(r.Command, r.Started, r.Took))
	return d
}

// title is the first line of the report.
func (r *Report) title() string {
	words := []string{"Benchmark"}
	if r.Profile.Name != "" {
		words = append(words, r.Profile.Name)
	}
	return strings.Join(words, " ") + ": " + strings.Join(r.Backends, ", ")
}

// turns describes the rounds and the printed values.
func turns(r *Report) string {
	return fmt.Sprintf("%s, %s. Medians of the rounds, with the lowest and the highest of them.", measure.Rounds(r.Rounds), r.Started.Format(time.DateOnly))
}

// each calls f for every backend that was measured.
func (r *Report) each(c worker.Case, f func(backend string, result *Result)) {
	for _, b := range r.Backends {
		if found := r.Find(b, c); found != nil {
			f(b, found)
		}
	}
}

// loads is about everything at once.
func (r *Report) loads() measure.Section {
	s := measure.Section{
		Heading: "Everything at once", Left: 2,
		Header: []string{"what", "backend", "wall", "CPU", ofFirstHeader(r), "in kernel", "in vswitchd", "of loop", "writes", "programs", "peak RSS", "of vswitchd"},
	}
	row := func(what string, f *Result) {
		writes := measure.Middle(f.Writes, measure.Plain())
		if f.Case == worker.ToolLoad {
			writes = "" // it counts none
		}
		s.Rows = append(s.Rows, []string{
			what, f.Backend, measure.SpreadSeconds(f.Wall), measure.SpreadSeconds(f.CPU), measure.Spread(r.ofFirst(f), measure.Multiples()), inKernel(f), inSwitch(f),
			measure.Middle(f.CPUOfLoop, measure.Plain()), writes, r.programs(f), measure.Middle(f.PeakRSS, measure.Megabytes()), measure.Middle(f.SwitchPeakRSS, measure.Megabytes()),
		})
	}
	short := func(what, backend, wall, cpu string) {
		s.Rows = append(s.Rows, append([]string{what, backend, wall, cpu}, make([]string, len(s.Header)-4)...))
	}
	model := func(_ string, f *Result) {
		if len(f.ModelWall) > 0 {
			short("  before it: objects -> model", f.Backend, measure.SpreadSeconds(f.ModelWall), measure.SpreadSeconds(f.ModelCPU))
		}
	}
	r.each(worker.FirstLoad, func(_ string, f *Result) { row("first load: model complete -> committed", f) })
	r.each(worker.ToolLoad, func(_ string, f *Result) { row("  the same state by the kernel's own tools", f) })
	r.each(worker.ToolLoad, func(b string, _ *Result) {
		if wall, cpu := r.loadRatio(b); len(wall) > 0 {
			short("  ratio of the two, in pairs", b, measure.Spread(wall, measure.Multiples()), measure.Spread(cpu, measure.Multiples()))
		}
	})
	r.each(worker.FirstLoad, model)
	r.each(worker.Restart, func(_ string, f *Result) { row("restart, nothing changed: model complete -> programmed", f) })
	r.each(worker.Restart, model)
	if f := r.Find("", worker.ManifestsRead); f != nil {
		row("before both: reading the objects from files (datastore manifests)", f)
	}
	r.each(worker.Recheck, func(_ string, f *Result) { row("full re-check of the kernel's state", f) })
	r.each(worker.FirstLoad, func(b string, f *Result) { s.Text = append(s.Text, r.loaded(b, f)) })
	return s
}

// loaded describes the loaded state of a backend, and the tools that load the same.
func (r *Report) loaded(backend string, f *Result) string {
	text := fmt.Sprintf("%s: the kernel then holds %s rules and %s elements", backend, measure.Grouped(int64(f.Rules)), measure.Grouped(int64(f.Elements)))
	if f.Flows > 0 {
		text += ", and the switch " + measure.Grouped(int64(f.Flows)) + " flows of policy"
	}
	if tool := r.Find(backend, worker.ToolLoad); tool != nil {
		text += "; the kernel's own tools are " + tool.Tool
	}
	return text + "."
}

// ofFirstHeader is the heading for the results of ofFirst.
func ofFirstHeader(r *Report) string { return "CPU, of " + r.Backends[0] }

// programs prints the number of programs started for each operation, if any
// backend of the run starts some.
func (r *Report) programs(f *Result) string {
	if !r.startsPrograms() || f.Backend == "" || f.Case == worker.ToolLoad {
		return ""
	}
	var words []string
	for _, p := range []struct {
		s         measure.Series
		one, many string
	}{{f.Saves, "save", "saves"}, {f.Restores, "restore", "restores"}} {
		switch n := p.s.Max(); n {
		case 0:
		case 1:
			words = append(words, "1 "+p.one)
		default:
			words = append(words, measure.Digits(n)+" "+p.many)
		}
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ") + ", " + measure.Share(f.StartedCPU, f.CPU) + " of CPU"
}

// inKernel prints which part of the CPU time the kernel used.
func inKernel(f *Result) string { return measure.Share(f.System, f.CPU) }

// inSwitch prints which part of the CPU time ovs-vswitchd used.
func inSwitch(f *Result) string {
	if len(f.SwitchCPU) == 0 {
		return ""
	}
	return measure.Share(f.SwitchCPU, f.CPU)
}

// changes is about one thing at a time.
func (r *Report) changes() measure.Section {
	s := measure.Section{
		Heading: "One change, from the object to the kernel's commit", Left: 2,
		Header: []string{"what", "backend", "p50", "p99", "max", "switch has it, p50", "p99", "changes", "CPU each", ofFirstHeader(r), "in kernel", "in vswitchd", "of loop", "writes", "programs"},
		Text: []string{
			"p50, p99 and max are over all changes of all rounds. An endpoint comes with a list of policies that no other " +
				"pod has; its pod object is known before, as the scheduler's word comes before the CNI's. " +
				"A policy applies to as many endpoints as the others. A change is in force with openflow when the switch has " +
				"looked through what its datapath has cached by the flows of before, in two rounds that begin 5 ms apart at least; before " +
				"that it has the flows, and has answered a barrier.",
		},
	}
	for _, c := range ChangeCases() {
		r.each(c, func(b string, f *Result) {
			has := []string{"", ""}
			if a := f.Answered; a.Count > 0 {
				has = []string{measure.Duration(a.P50), measure.Duration(a.P99)}
			}
			s.Rows = append(s.Rows, slices.Concat(times(Words(c), f), has, []string{
				measure.Grouped(f.Latency.Count), measure.SpreadSeconds(f.CPU), measure.Spread(r.ofFirst(f), measure.Multiples()), inKernel(f), inSwitch(f), measure.Middle(f.CPUOfLoop, measure.Plain()),
				measure.Middle(f.Writes, measure.Plain()), r.programs(f),
			}))
		})
	}
	return s
}

// foreign is the section about changes by other programs.
func (r *Report) foreign() measure.Section {
	s := measure.Section{
		Heading: "A foreign change, from the other program's request to the repair's commit", Left: 2,
		Header: []string{"what", "backend", "p50", "p99", "max", "changes", "notified after", "CPU each", "in kernel", "in vswitchd", "of loop", "writes"},
		Text: []string{
			"The other program is a netlink socket of the worker's own, or an OpenFlow connection; its part is in the CPU figures. The agent is notified of a " +
				"change when the kernel has made it: to delete everything takes time by itself.",
		},
	}
	for _, b := range r.Backends {
		if every := r.CheckEvery[b]; every > 0 {
			s.Text = append(s.Text, fmt.Sprintf("%s is not notified of foreign changes: the full re-check, every %s, finds and undoes them.", b, measure.Duration(every)))
		}
	}
	for _, c := range ForeignCases() {
		r.each(c, func(b string, f *Result) {
			s.Rows = append(s.Rows, slices.Concat(times(Words(c), f), []string{
				measure.Grouped(f.Latency.Count), measure.MiddleSeconds(f.NotifiedWall), measure.SpreadSeconds(f.CPU), inKernel(f), inSwitch(f), measure.Middle(f.CPUOfLoop, measure.Plain()), measure.Middle(f.Writes, measure.Plain()),
			}))
		})
	}
	return s
}

// times are the first columns of every kind of change.
func times(what string, f *Result) []string {
	return []string{
		what, f.Backend, measure.Duration(f.Latency.P50), measure.Duration(f.Latency.P99), measure.Duration(f.Latency.Max),
	}
}

// idle is about nothing at all.
func (r *Report) idle() measure.Section {
	s := measure.Section{
		Heading: "Idle", Left: 1,
		Header: []string{"backend", "for", "CPU", "in vswitchd", "an hour of it", "writes", "peak RSS since start", "of vswitchd"},
	}
	r.each(worker.Idle, func(b string, f *Result) {
		s.Rows = append(s.Rows, []string{
			b, measure.Duration(f.Wall.Median()), measure.Duration(f.CPU.Median()), inSwitch(f), r.hourOf(b, f), measure.Middle(f.Writes, measure.Plain()),
			measure.Middle(f.PeakRSS, measure.Megabytes()), measure.Middle(f.SwitchPeakRSS, measure.Megabytes()),
		})
	})
	return s
}

// hourOf describes the cost of an idle hour, with the periodic checks that the
// measurement does not have.
func (r *Report) hourOf(backend string, idle *Result) string {
	const hour = 3600.0
	cost, how := idle.CPU.Median()/idle.Wall.Median()*hour, "extrapolated"
	if idle.Wall.Median() >= hour {
		how = "measured"
	}
	if every, check := r.CheckEvery[backend], r.Find(backend, worker.Recheck); every > 0 && check != nil {
		cost += hour / every * check.CPU.Median()
		how += ", with " + measure.Digits(hour/every) + " re-checks"
	}
	return fmt.Sprintf("%s (%s)", measure.Duration(cost), how)
}

// engine is about the policy engine alone.
func (r *Report) engine() measure.Section {
	s := measure.Section{
		Heading: "Policy engine: from the objects of a whole cluster to the model of a node", Left: 2,
		Header: []string{"cluster", "pods are on", "pods", "policies", "engine, wall", "engine, CPU", "process, CPU", "of loop", "peak RSS", "others"},
		Text: []string{
			"The process makes the objects and holds them; the engine's own share is what an agent adds to its datastore. " +
				"With every pod on this node the engine computes all that a central controller would, and stands beside one.",
		},
	}
	for _, e := range r.Engine {
		where, others := "1,000 nodes", ""
		if e.Placement == workloads.EveryPodLocal {
			where = "this node"
			if e.Antrea != nil {
				others = fmt.Sprintf("Antrea %s, %s", measure.SpreadSeconds(measure.Series{e.Antrea.CPUSeconds}), measure.Megabytes().Print(e.Antrea.PeakRSSMegs*1e6))
			}
		}
		s.Rows = append(s.Rows, []string{
			e.Workload, where, measure.Grouped(int64(e.Pods)), measure.Grouped(int64(e.Policies)), measure.SpreadSeconds(e.EngineWall), measure.SpreadSeconds(e.EngineCPU),
			measure.SpreadSeconds(e.ProcessCPU), measure.Middle(e.CPUOfLoop, measure.Plain()), measure.Middle(e.PeakRSS, measure.Megabytes()), others,
		})
	}
	return s
}

func (r *Report) budgets() measure.Section {
	s := measure.Section{
		Heading: "Budgets", Left: 2,
		Header: []string{"what", "backend", "budget", "measured", ""},
		Text:   []string{"A change is measured from the object, a little before the budget's update of the model."},
	}
	for _, b := range r.Budgets {
		verdict := "MISSED"
		if b.Met {
			verdict = "met"
		}
		s.Rows = append(s.Rows, []string{b.What, b.Backend, b.Limit, b.Measured, verdict})
	}
	return s
}

// antreaSource is the source of Antrea's figures in the section about the policy engine.
const antreaSource = "Antrea's figures were measured apart from this run, on the same kind of machine (a shared virtual machine with two cores) and with " +
	"clusters of the same size: its controller benchmarks, CPU time and peak RSS of the whole process, which holds the objects like ours."

func (r *Report) notes() measure.Section {
	return measure.Section{Heading: "Scope", Text: []string{
		"Each turn runs in new network namespaces, in new processes: one loads, the next finds everything loaded and goes on. " +
			"They hold the agent's own driver, policy engine, managers and backend, fed with objects in memory: how long it takes to read them " +
			"is a separate figure. Forwarding flows, routes and conntrack are not in these figures: it is the policy stage alone. " +
			"With openflow, the switch is a separate one with the userspace datapath and an empty bridge; the work of ovs-vswitchd is in the CPU time.",
		"CPU is user and system time of the process and of those that it starts; work that the kernel puts off to its own threads is not in it. " +
			"\"In kernel\" is the system time's share of it, by samples of the kernel's clock: it is rough where all rounds come to little. " +
			"\"Programs\" are those that were started for one operation, and their share of it. " +
			"Peak RSS is of the whole process, with the benchmark's objects. \"Of loop\" is CPU as a ratio to a calibration loop that runs " +
			fmt.Sprintf("before and after each turn (SHA-256 over %d MB: %s CPU), since machines vary.", calibrationBytes>>20, measure.SpreadSeconds(r.Calibration)),
		antreaSource,
	}}
}
