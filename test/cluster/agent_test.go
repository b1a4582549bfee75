package cluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/felixlike/felixlike/cni"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/test/cluster/kubelab"
)

// agent returns the control API of the agent on a node.
func (s *site) agent(t *testing.T, node string) *control.Client {
	t.Helper()
	path, err := s.Path(node, filepath.Join("/run/felixlike", control.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	return control.NewClient(path)
}

// kinds are the backends that an agent may report for a configured kind.
func kinds(backend string) []string {
	if backend == "iptables" {
		return []string{config.IPTablesLegacy, config.IPTablesNFT}
	}
	return []string{backend}
}

// expectBackend fails the test unless all agents run a backend, and nothing is wrong
// with them.
func (s *site) expectBackend(t *testing.T, backend string) {
	t.Helper()
	for _, node := range s.Nodes() {
		until(t, 30*time.Second, func() error {
			status, err := s.agent(t, node).Status(t.Context())
			if err != nil {
				return err
			}
			for _, kind := range kinds(backend) {
				if status.Backend == kind {
					return nil
				}
			}
			return fmt.Errorf("%s: backend %s, wanted %s", node, status.Backend, backend)
		})
	}
}

// wholeChecksums makes the control plane fill in the checksums of its packets to
// nodes, as a network card does. Between two ends of a veth they are left out, and
// Open vSwitch's userspace datapath passes frames on as they are.
func (s *site) wholeChecksums(t *testing.T) {
	t.Helper()
	err := open(t, kubelab.ControlPlane).Do(func() error {
		var errs []error
		for _, node := range s.Nodes() {
			errs = append(errs, cni.DisableTxChecksum("v-"+node))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Fatal(err)
	}
}
