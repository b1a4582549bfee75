package ui

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

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

// lab is an Access to a lab, which sends packets.
type lab struct {
	*agents
	result sent
	fails  error
	sent   []string
}

func (l *lab) Sends() bool { return true }

func (l *lab) Send(_ context.Context, from, to, port, family string) (sent, error) {
	l.sent = append(l.sent, strings.Join([]string{from, to, port, family}, " "))
	return l.result, l.fails
}

// TestSend: the page of a trace sends one packet in a lab, when its button is pressed, and says what became of it. A cluster sends none.
func TestSend(t *testing.T) {
	const button = ">Send one packet<"
	a := shop()
	a.answers["trace"] = strings.ReplaceAll(tracedJSON, `"verdict":`, `"packet": {"destination": "10.0.0.2", "protocol": "tcp", "port": 5432}, "verdict":`)
	of, form := &lab{agents: a}, url.Values{"from": {"ops/shell"}, "to": {"shop/db"}, "port": {"pg/tcp"}, "family": {"4"}}
	s := serve(t, of)
	text := s.get(t, tracePath+"?"+form.Encode())
	if !strings.Contains(text, button) || !strings.Contains(text, `name="port" value="5432/tcp"`) || !strings.Contains(text, `name="family" value="4"`) || len(of.sent) > 0 {
		t.Fatalf("sent %q; page\n%s", of.sent, text)
	}
	for want, result := range map[string]sent{
		"One packet was sent: <b>allowed</b> (connected, answered in 2ms)": {Tried: true, Through: true, Reason: "connected", RTT: 2 * time.Millisecond},
		"One packet was sent: <b>denied</b> (no answer)":                   {Tried: true, Reason: "no answer"},
		"No packet was sent: no pod &lt;b&gt;":                             {Reason: "no pod <b>"},
	} {
		of.result, of.sent = result, nil
		answer, text := s.do(t, s.request(t, http.MethodPost, tracePath, form))
		if answer.StatusCode != http.StatusOK || !strings.Contains(text, want) || !slices.Equal(of.sent, []string{"ops/shell shop/db pg/tcp 4"}) {
			t.Errorf("%s: %s, sent %q; page\n%s", want, answer.Status, of.sent, text)
		}
	}
	of.result, of.fails = sent{}, errors.New("no felixlab")
	if answer, text := s.do(t, s.request(t, http.MethodPost, tracePath, form)); answer.StatusCode != http.StatusOK || !strings.Contains(text, "No packet was sent: no felixlab") || !strings.Contains(text, "<b>denied</b>") {
		t.Errorf("without felixlab: %s\n%s", answer.Status, text)
	}
	of.sent = nil
	for _, bad := range []url.Values{
		{"from": {"ops/shell"}, "to": {"10.0.0.1"}, "port": {"80/tcp"}, "family": {"4"}},
		{"from": {"node:n1"}, "to": {"shop/db"}, "port": {"80/tcp"}, "family": {"4"}},
		{"from": {"ops/shell"}, "to": {"service:shop/db"}, "port": {"80/tcp"}, "family": {"4"}},
		{"from": {"ops/shell"}, "to": {"shop/db"}},
	} {
		if answer, text := s.do(t, s.request(t, http.MethodPost, tracePath, bad)); answer.StatusCode != http.StatusBadRequest || len(of.sent) > 0 {
			t.Errorf("%v: %s, sent %q\n%s", bad, answer.Status, of.sent, text)
		}
		if text := s.get(t, tracePath+"?"+bad.Encode()); strings.Contains(text, button) {
			t.Errorf("%v has a button", bad)
		}
	}
	cluster := serve(t, a)
	if text := cluster.get(t, tracePath+"?"+form.Encode()); strings.Contains(text, button) {
		t.Error("the pages of a cluster offer to send")
	}
	if answer, text := cluster.do(t, cluster.request(t, http.MethodPost, tracePath, form)); answer.StatusCode != http.StatusBadRequest || !strings.Contains(text, "only a lab sends packets") {
		t.Errorf("a cluster: %s\n%s", answer.Status, text)
	}
}
