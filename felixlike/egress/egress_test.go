package egress

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/driver"
	"github.com/felixlike/felixlike/felixlike/driver/drivertest"
	"github.com/felixlike/felixlike/felixlike/driver/moduletest"
	"github.com/felixlike/felixlike/model"
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

// elected is an election that a test answers.
type elected struct {
	wanted chan []model.EgressAddress
	leases chan model.EgressLeases
}

func (e elected) Wanted(all []model.EgressAddress, _ uint64) { e.wanted <- all }

func (e elected) Run(ctx context.Context, report func(model.EgressLeases)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-e.leases:
			report(l)
		}
	}
}

// TestLeasesAreWaitedFor: with an Egress whose node is elected, nothing is programmed before the elected nodes are known: the address of another
// node would be given to packets here. Without such an Egress nobody waits.
func TestLeasesAreWaitedFor(t *testing.T) {
	for name, egress := range map[string]string{
		"elected": "{nodeSelector: {}, egressIP: 192.168.50.1, appliedTo: {podSelector: {}}}", "of one node": "{node: node1, egressIP: 192.168.50.1, appliedTo: {podSelector: {}}}",
	} {
		t.Run(name, func(t *testing.T) {
			v, table := &driver.View{}, drivertest.NewTable(t)
			e := New(v, Options{Addresses: taken{}})
			answers := elected{make(chan []model.EgressAddress, 100), make(chan model.EgressLeases)}
			e.election = answers
			f := moduletest.Start(t, driver.Config{Stages: []backend.Stage{table.Stage()}}, v, e.Module())
			o := &antrea.NodeEgress{}
			o.Name = "out"
			if err := yaml.Unmarshal([]byte(egress), &o.Spec); err != nil {
				t.Fatal(err)
			}
			f.AttachmentsSynced()
			f.Source.Send(true, drivertest.Node("node1", "10.10.0.0/24"), datastore.AntreaSet{Object: o})
			if all := <-answers.wanted; len(all) != 1 {
				t.Errorf("the election has %v", all)
			}
			if name == "elected" {
				if got := f.Missing(t); got != "the nodes with the addresses of Egresses are not known" || table.Count() > 0 {
					t.Errorf("%d applies; missing: %q", table.Count(), got)
				}
				answers.leases <- model.EgressLeases{Generation: 1}
			}
			f.Programmed(t)
		})
	}
}
