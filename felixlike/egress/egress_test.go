package egress

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/driver/moduletest"
)

// taken are addresses of which another host has one.
type taken struct{ Addresses }

func (taken) Refused() map[netip.Addr]error {
	return map[netip.Addr]error{netip.MustParseAddr("192.168.50.1"): errors.New("another host has it")}
}

// TestRefusedAddressesAreNamed: status names the Egress whose address another host has.
func TestRefusedAddressesAreNamed(t *testing.T) {
	v := &driver.View{}
	f := moduletest.Start(t, driver.Config{}, v, New(v, Options{Addresses: taken{}}).Module())
	e := &antrea.NodeEgress{}
	e.Name = "out"
	if err := yaml.Unmarshal([]byte("{node: node1, egressIP: 192.168.50.1, appliedTo: {podSelector: {}}}"), &e.Spec); err != nil {
		t.Fatal(err)
	}
	f.Begin(t, datastore.AntreaSet{Object: e, Source: "out.yaml"})
	problems := f.Status().Problems
	if len(problems) != 1 || problems[0].Source != "out.yaml" || problems[0].Object.Name != "out" || !strings.Contains(problems[0].Reason, "another host has it") {
		t.Errorf("problems %v", problems)
	}
}
