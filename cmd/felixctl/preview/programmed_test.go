package preview

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/model"
)

// TestProgram lists the rules and flows of a new policy, by its name, and nothing for
// one that is there already.
func TestProgram(t *testing.T) {
	o := objects(t, shop)
	c := Change{Set: objects(t, dbPolicy).Policies}
	now := o
	now.Policies = c.Set
	like := control.Model{Node: "n1", HostAddresses: []netip.Addr{netip.MustParseAddr("192.168.0.1")}}
	for _, u := range engineOf(o, nil).Flush() {
		like.Add(u)
	}
	for i, pod := range []string{"db", "web-1"} {
		like.Attachments = append(like.Attachments, control.Attachment{
			Pod: model.PodID{Namespace: "shop", Name: pod}, Interface: "fx-" + pod, OFPort: uint32(10 + i), MAC: "0a:00:00:00:00:01",
			Addresses: []netip.Addr{addressOf(o.Pods[i], model.IPv4)},
		})
	}
	for _, like.Backend = range []string{config.NFTables, config.IPTablesLegacy, config.OpenFlow} {
		var p Preview
		if err := p.Program(o, c, like); err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		for _, object := range p.Programmed {
			text.WriteString(object.Note)
			for _, change := range object.Changes {
				text.WriteString(change.Before + change.After + change.Note)
			}
		}
		if !p.Changes() || !strings.Contains(text.String(), "shop/db ingress[0]") {
			t.Errorf("%s: %+v", like.Backend, p.Programmed)
		}
		var same Preview
		if err := same.Program(now, c, like); err != nil || same.Changes() {
			t.Errorf("%s: the same policy again: %+v, %v", like.Backend, same.Programmed, err)
		}
	}
}
