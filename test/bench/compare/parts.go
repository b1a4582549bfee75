package compare

import (
	"fmt"

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
	}
}

// differences are fields that differ, with their values.
type differences []string

func (d *differences) add(field string, before, after any) {
	if before != after {
		*d = append(*d, fmt.Sprintf("%s: %v and %v", field, before, after))
	}
}
