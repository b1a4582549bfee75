package ovsdb

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/felixlike/felixlike/model"
)

// The pipeline takes the gateway's port number for the host: another port that
// has it must not pass for the gateway.
func TestForeignPortWithTheGatewaysNumberIsAnError(t *testing.T) {
	f := newFixture(t)
	f.veth("v1")
	f.vsctl("add-br", "br-int", "--", "set", "bridge", "br-int", "datapath_type=netdev",
		"--", "add-port", "br-int", "v1", "--", "set", "interface", "v1", "ofport_request=2")
	err := f.open().EnsureBridge(f.context())
	if err == nil || !strings.Contains(err.Error(), "flx-gw0") || !strings.Contains(err.Error(), "must have 2") {
		t.Errorf("error %v does not name the port and the number", err)
	}
}

// A pod that had two interfaces and lost one still has the other.
func TestSurvivingInterfaceIsAnnouncedAgain(t *testing.T) {
	f := newFixture(t)
	c := f.open()
	f.ensure(c)
	f.veth("v1")
	f.veth("v2")
	kept, extra := attachment("web", "v1"), attachment("web", "v2")
	var err error
	if kept.OFPort, err = c.AttachPort(f.context(), kept); err != nil {
		t.Fatal(err)
	}
	if extra.OFPort, err = c.AttachPort(f.context(), extra); err != nil {
		t.Fatal(err)
	}
	events, _ := f.watch(f.open())
	for range 3 { // both interfaces, and "in sync"
		f.next(events)
	}
	if err := c.DetachPort(f.context(), "v2", extra.Pod); err != nil {
		t.Fatal(err)
	}
	for _, want := range []any{
		model.AttachmentRemove{Pod: extra.Pod, Interface: "v2"},
		model.AttachmentUpdate{Attachment: &kept},
	} {
		if d := cmp.Diff(want, f.next(events), cmpopts.EquateComparable(netip.Addr{})); d != "" {
			t.Error(d)
		}
	}
}
