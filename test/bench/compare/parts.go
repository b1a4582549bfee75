package compare

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/internal/measure"
	"github.com/felixlike/felixlike/test/bench"
)

// part is compared or refused as a whole.
type part struct {
	name    string
	metrics func(r *bench.Report) []bench.Metric
	// differ names the fields that make the two measurements different things.
	differ func(before, after *bench.Report) []string
}

func parts() []part {
	return []part{
		{"programming", (*bench.Report).ProgrammingMetrics, func(a, b *bench.Report) []string {
			var d differences
			for _, f := range []struct {
				name          string
				before, after int
			}{
				{"namespaces", a.Profile.Namespaces, b.Profile.Namespaces},
				{"endpoints", a.Profile.Endpoints, b.Profile.Endpoints},
				{"policiesPerEndpoint", a.Profile.PoliciesPerEndpoint, b.Profile.PoliciesPerEndpoint},
				{"policies", a.Profile.Policies, b.Profile.Policies},
				{"rulesPerPolicy", a.Profile.RulesPerPolicy, b.Profile.RulesPerPolicy},
				{"groups", a.Profile.Groups, b.Profile.Groups},
				{"groupSize", a.Profile.GroupSize, b.Profile.GroupSize},
				{"engineDivisor", a.Profile.EngineDivisor, b.Profile.EngineDivisor},
			} {
				d.add("profile."+f.name, f.before, f.after)
			}
			return d
		}},
		{"enforcement", (*bench.Report).EnforcementMetrics, func(a, b *bench.Report) []string {
			var d differences
			if was, is := a.Enforcement, b.Enforcement; was != nil && is != nil {
				d.add("enforcement.datapath", was.Datapath, is.Datapath)
				d.add("enforcement.datastore", was.Datastore, is.Datastore)
				d.add("enforcement.datastoreQuietSeconds", was.Quiet, is.Quiet)
				d.add("enforcement.policies", was.Policies, is.Policies)
				d.add("enforcement.probeIntervalSeconds", was.Interval, is.Interval)
			}
			return d
		}},
		{"packets", (*bench.Report).PacketsMetrics, func(a, b *bench.Report) []string {
			var d differences
			if was, is := a.Packets, b.Packets; was != nil && is != nil {
				d.add("packets.datapath", was.Datapath, is.Datapath)
				d.add("packets.floor", was.Floor, is.Floor)
				d.add("packets.rulesPerPolicy", was.RulesPerPolicy, is.RulesPerPolicy)
			}
			return d
		}},
		{"live", (*bench.Report).LiveMetrics, func(a, b *bench.Report) []string {
			var d differences
			if was, is := a.Live, b.Live; was != nil && is != nil {
				d.add("live.node", was.Node, is.Node)
				d.add("live.datapath", was.Datapath, is.Datapath)
				d.add("live.datastore", was.Datastore, is.Datastore)
			}
			return d
		}},
	}
}

// differences are fields that differ, with their values.
type differences []string

func (d *differences) add(field string, before, after any) {
	if before != after {
		*d = append(*d, fmt.Sprintf("%s: %v and %v", field, before, after))
	}
}

// warn adds the differences that leave doubt.
func (c *Comparison) warn(before, after *bench.Report) {
	var d differences
	was, is := before.Machine, after.Machine
	d.add("machine.cpu", was.CPU, is.CPU)
	d.add("machine.cores", was.Cores, is.Cores)
	d.add("machine.memory", was.Memory, is.Memory)
	d.add("machine.kernel", was.Kernel, is.Kernel)
	d.add("machine.system", was.System, is.System)
	d.add("machine.go", was.Go, is.Go)
	names := slices.Collect(maps.Keys(was.Tools))
	for name := range is.Tools {
		if _, known := was.Tools[name]; !known {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if was.Tools[name] != "" && is.Tools[name] != "" {
			d.add("machine.tools."+name, was.Tools[name], is.Tools[name])
		}
	}
	if before.Packets != nil && after.Packets != nil {
		d.add("packets.durationSeconds", before.Packets.Duration, after.Packets.Duration)
	}
	d.add("rounds", before.Rounds, after.Rounds)
	c.Warnings = append(c.Warnings, d...)
	for _, side := range []struct {
		name string
		of   measure.Machine
	}{{"old", was}, {"new", is}} {
		if side.of.Busy() {
			c.Warnings = append(c.Warnings, fmt.Sprintf("machine.loadBefore: %s on %d cores in the %s report: the machine was busy, and its figures are of little worth",
				side.of.LoadBefore, side.of.Cores, side.name))
		}
	}
	for _, side := range []struct {
		name      string
		its, that []string
	}{{"old", before.Backends, after.Backends}, {"new", after.Backends, before.Backends}} {
		alone := slices.DeleteFunc(slices.Clone(side.its), func(b string) bool { return slices.Contains(side.that, b) })
		if len(alone) > 0 {
			c.Warnings = append(c.Warnings, fmt.Sprintf("backends: %s only in the %s report", strings.Join(alone, ", "), side.name))
		}
	}
	if c.LoopRatio == 0 {
		c.Warnings = append(c.Warnings, "calibrationCPUSeconds: not in both reports: times are not corrected for the machine")
	}
}
