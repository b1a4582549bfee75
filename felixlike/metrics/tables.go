package metrics

import "github.com/prometheus/client_golang/prometheus"

// Table is the state of a table with a limit.
type Table struct {
	Name           string
	Entries, Limit uint64
}

// tableCollector makes gauges of the values of read.
type tableCollector struct{ read func() []Table }

// WatchTables adds gauges of tables with a limit. It calls read at each scrape.
func (m *Metrics) WatchTables(read func() []Table) { m.registry.MustRegister(tableCollector{read}) }

func tableEntriesDesc() *prometheus.Desc {
	return prometheus.NewDesc("felixlike_table_entries",
		"Entries of a table of the node: conntrack (connections that the kernel tracks in the agent's network namespace) and switch-conntrack (those of the userspace datapath).",
		[]string{"table"}, nil)
}

func tableLimitDesc() *prometheus.Desc {
	return prometheus.NewDesc("felixlike_table_entries_limit",
		"Most entries that the table takes: nf_conntrack_max, the limit of the userspace datapath. Above it new connections are lost.",
		[]string{"table"}, nil)
}

// Describe implements prometheus.Collector.
func (tableCollector) Describe(descs chan<- *prometheus.Desc) {
	descs <- tableEntriesDesc()
	descs <- tableLimitDesc()
}

// Collect implements prometheus.Collector.
func (c tableCollector) Collect(out chan<- prometheus.Metric) {
	for _, t := range c.read() {
		out <- prometheus.MustNewConstMetric(tableEntriesDesc(), prometheus.GaugeValue, float64(t.Entries), t.Name)
		out <- prometheus.MustNewConstMetric(tableLimitDesc(), prometheus.GaugeValue, float64(t.Limit), t.Name)
	}
}
