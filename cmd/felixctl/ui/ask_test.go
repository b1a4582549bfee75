package ui

import (
	"encoding/json"
	"net/netip"
	"net/url"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/model"
)

// TestAllowPath: the link to the proposal has a port that its page can read, also if the question names a port, a Service or a message of ICMP.
func TestAllowPath(t *testing.T) {
	tcp := trace.Packet{Source: netip.MustParseAddr("10.0.0.1"), Destination: netip.MustParseAddr("10.0.0.2"), Protocol: model.TCP, Port: 5432}
	echo := trace.Packet{Source: tcp.Source, Destination: tcp.Destination, Protocol: model.ICMP, Port: model.ICMPMessage(13, 0)}
	for _, c := range []struct {
		asked, service string
		packet         trace.Packet
		to, port       string
	}{
		{"pg/tcp", "", tcp, "shop/db", "5432/tcp"},
		{"tcp/80", "shop/db", tcp, "10.0.0.2", "5432/tcp"},
		{"icmp/13", "", echo, "shop/db", "icmp"},
	} {
		text, err := json.Marshal(map[string]any{"packet": c.packet, "service": c.service})
		if err != nil {
			t.Fatal(err)
		}
		var answer traced
		if err := json.Unmarshal(text, &answer); err != nil {
			t.Fatal(err)
		}
		link, err := url.Parse(why{From: "shop/web", To: "shop/db", Port: c.asked}.AllowPath(answer))
		if err != nil {
			t.Fatal(err)
		}
		q := link.Query()
		if _, err := preview.ParsePort(q.Get("port")); err != nil || q.Get("port") != c.port || q.Get("to") != c.to {
			t.Errorf("%s: %v, %v", c.asked, link, err)
		}
	}
}
