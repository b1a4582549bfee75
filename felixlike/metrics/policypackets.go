package metrics

import "github.com/prometheus/client_golang/prometheus"

// PolicyPackets are the labels of a counter of packets that policy decided.
type PolicyPackets struct{ Direction, Action string }

// policyCollector makes a counter of the values of read.
type policyCollector struct {
	read func() (map[PolicyPackets]uint64, error)
}

// CountPolicyPackets adds a counter of packets that policy decided. At each scrape read returns
// the counts. After an error the metric is absent from that scrape.
func (m *Metrics) CountPolicyPackets(read func() (map[PolicyPackets]uint64, error)) {
	m.registry.MustRegister(policyCollector{read})
}

func policyDesc() *prometheus.Desc {
	return prometheus.NewDesc("felixlike_policy_packets_total",
		"Packets of new connections that policy decided on this node: allow (rules that allow; pods without policies are not counted), deny (rules that deny, and isolation). Packets between the last scrape and the end of a rule are not counted.",
		[]string{"direction", "action"}, nil)
}

// Describe implements prometheus.Collector.
func (policyCollector) Describe(descs chan<- *prometheus.Desc) { descs <- policyDesc() }

// Collect implements prometheus.Collector.
func (c policyCollector) Collect(out chan<- prometheus.Metric) {
	counts, err := c.read()
	if err != nil {
		return // the dataplane does not answer
	}
	for of, packets := range counts {
		out <- prometheus.MustNewConstMetric(policyDesc(), prometheus.CounterValue, float64(packets), of.Direction, of.Action)
	}
}
