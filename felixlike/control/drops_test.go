package control

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestDrops: denied packets come as they happen, until the follower goes.
func TestDrops(t *testing.T) {
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	want := []Drop{
		{
			At: at, Direction: "ingress", From: DropEnd{Address: netip.MustParseAddr("10.0.0.7"), Pod: "shop/web"}, To: DropEnd{Address: netip.MustParseAddr("10.0.0.8")},
			Protocol: "tcp", SourcePort: 40000, Port: 80, By: ByIsolation, Policies: []string{"shop/deny-all"},
		},
		{At: at, Direction: "egress", Protocol: "icmp", ICMP: &ICMPType{Type: 8}, By: ByClosed, Reason: "because"},
		{At: at, NotShown: 7},
	}
	agent := &fakeAgent{left: make(chan struct{})}
	for i := range want {
		agent.drops = append(agent.drops, &want[i], nil)
	}
	path, _ := serve(t, agent)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun := 0
	var got []Drop
	err := NewClient(path).Drops(ctx, func() { begun++ }, func(d Drop) error {
		if got = append(got, d); len(got) == len(want) {
			cancel()
		}
		return nil
	})
	if err != nil || begun != 1 || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, begun %d times\n got %+v\nwant %+v", err, begun, got, want)
	}
	select {
	case <-agent.left:
	case <-time.After(30 * time.Second):
		t.Error("the agent does not learn that the follower has gone")
	}
}

// TestDropsFail: an agent that cannot report answers with an error first, and a caller can end the stream.
func TestDropsFail(t *testing.T) {
	path, _ := serve(t, &fakeAgent{err: errors.New("no meters")})
	err := NewClient(path).Drops(t.Context(), func() { t.Error("begun") }, nil)
	if err == nil || !strings.Contains(err.Error(), "no meters") {
		t.Error(err)
	}
	path, _ = serve(t, &fakeAgent{left: make(chan struct{}), drops: []*Drop{{NotShown: 1}}})
	enough := errors.New("enough")
	if err := NewClient(path).Drops(t.Context(), func() {}, func(Drop) error { return enough }); !errors.Is(err, enough) {
		t.Error(err)
	}
}

func TestDropTexts(t *testing.T) {
	for want, d := range map[string]Drop{
		"tcp/80": {Protocol: "tcp", Port: 80}, "sctp": {Protocol: "sctp"}, "icmp 3/1": {Protocol: "icmp", ICMP: &ICMPType{3, 1}},
		"icmp echo-reply": {Protocol: "icmp", ICMP: &ICMPType{}}, "icmpv6 echo-request": {Protocol: "icmpv6", ICMP: &ICMPType{Type: 128}}, "icmpv6 8/0": {Protocol: "icmpv6", ICMP: &ICMPType{Type: 8}},
	} {
		if got := d.PortText(); got != want {
			t.Errorf("%+v: %q, want %q", d, got, want)
		}
	}
}

// TestDropHistory: the client gets the agent's history.
func TestDropHistory(t *testing.T) {
	path, _ := serve(t, &fakeAgent{})
	h, err := NewClient(path).DropHistory(t.Context())
	if err != nil || len(h.Minutes) != 1 || h.Minutes[0].Flows[0].Packets != 3 || h.Minutes[0].Flows[0].Direction != "ingress" {
		t.Errorf("%+v, %v", h, err)
	}
}
