package driver

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
)

// TestRefusedAddressesAreNamed: status names the Egress whose address another host has.
func TestRefusedAddressesAreNamed(t *testing.T) {
	s := &drivertest.Stages{Fail: map[string]error{}}
	f := startWith(t, Config{Stages: []backend.Stage{s.Stage("nftables", true)}, RefusedAddresses: func() map[netip.Addr]error {
		return map[netip.Addr]error{netip.MustParseAddr("192.168.50.1"): errors.New("another host has it")}
	}})
	e := &antrea.NodeEgress{}
	e.Name = "out"
	if err := yaml.Unmarshal([]byte("{node: node1, egressIP: 192.168.50.1, appliedTo: {podSelector: {}}}"), &e.Spec); err != nil {
		t.Fatal(err)
	}
	f.begin(t, datastore.AntreaSet{Object: e, Source: "out.yaml"})
	problems := f.Status().Problems
	if len(problems) != 1 || problems[0].Source != "out.yaml" || problems[0].Object.Name != "out" || !strings.Contains(problems[0].Reason, "another host has it") {
		t.Errorf("problems %v", problems)
	}
}
