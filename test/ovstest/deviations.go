package ovstest

// Deviation says why a row of the reference about source addresses is not installed, and what shows that packets get the same treatment.
type Deviation struct {
	Why string
	// Tests are the folders and names of the tests, as in "test/e2e: TestEgress".
	Tests []string
}

// Deviations returns the rows of the scenarios SNAT and EGRESS that are not installed, by id. docs/results/conformance.md has the same table.
func Deviations() map[string]Deviation {
	const (
		flows   = "ovsfwd/pipeline: TestEgressFlows"
		snat    = "ovsfwd/pipeline: TestSNAT"
		packets = "test/e2e: TestEgress"
	)
	return map[string]Deviation{
		"F048": {"only packets of pods that an Egress gives an address of this node go from the tunnel to the host: table 70, priority 152, by the pod's address", []string{flows, packets}},
		"F049": {"a packet of a pod without an Egress here is dropped by the host, in any state of its connection", []string{"felixlike/backend: TestEgressTable", packets}},
		"F051": {"a mark written in the bridge is lost at the gateway port on the userspace datapath (a tap device), and one form has to serve both datapaths: the host has a set of pods for each address", []string{"felixlike/policy: TestEgressesOfOneAddress", packets}},
		"F052": {"the host decides egress under every backend, so the packet passes the host first; then table 10, priority 206, sends it to the address of the other node", []string{flows, packets}},
		"F053": {"the tunnel ends at the node's address, also for Egresses, so that the guard knows both ends; the other node chooses the source by the pod's address", []string{"managers: TestEgressThroughTunnel", packets}},
		"F102": {"one zone for policy and translation: our translation has a zone of its own, F017 stays", []string{snat}},
		"F105": {"believes the MAC address that a pod writes; the flows for local pods are above, those for unused addresses drop", []string{snat}},
		"F107": {"believes the MAC address that a pod writes, in connections that are not allowed; priority 205 is installed instead", []string{"ovsfwd/pipeline: TestPaths", "test/e2e: TestSNAT"}},
		"F109": {"an egress rule with ports has committed the connection before, so it would get no translation: table 111, zone 65521", []string{snat, "ovsfwd/pipeline: TestSNATDenied"}},
	}
}
