package metrics

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// droppedCollector makes a counter of the values of read.
type droppedCollector struct {
	read func() (map[string]uint64, error)
}

// CountDropped adds a counter of packets that the switch drops for reasons other than
// policy. At each scrape read returns the counts by reason. After an error the metric is
// absent from that scrape.
func (m *Metrics) CountDropped(read func() (map[string]uint64, error)) {
	m.registry.MustRegister(droppedCollector{read})
}

func droppedDesc() *prometheus.Desc {
	return prometheus.NewDesc("felixlike_dropped_packets_total",
		"Packets that the switch dropped for reasons other than policy: tunnel-source (came by the tunnel from an address that is no node's, or with a source that the sending node does not have), tunnel-end (sent by a pod to a node's end of the tunnel), new-connection-rate (above the rate of new connections that a pod may begin, with backend openflow). Packets between the last scrape and the end of a pod are not counted.",
		[]string{"reason"}, nil)
}

// Describe implements prometheus.Collector.
func (droppedCollector) Describe(descs chan<- *prometheus.Desc) { descs <- droppedDesc() }

// Collect implements prometheus.Collector.
func (c droppedCollector) Collect(out chan<- prometheus.Metric) {
	counts, err := c.read()
	if err != nil {
		return // the switch does not answer
	}
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		out <- prometheus.MustNewConstMetric(droppedDesc(), prometheus.CounterValue, float64(counts[reason]), reason)
	}
}
