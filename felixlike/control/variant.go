package control

import "fmt"

// Judges returns an error if the node's bridge has a pipeline whose flows and policies felixctl does not judge.
func (m *Model) Judges() error {
	if m.Settings.ClusterCIDR.IsValid() {
		return fmt.Errorf("node %s has pipelineVariant: openshift, which isolates namespaces by number and puts no policies in force: this command knows the default pipeline only", m.Node)
	}
	return nil
}
