package model

import (
	"encoding/json"
	"net/netip"
	"testing"
)

// TestFailsafe: records from before ports had prefixes are read as they were meant, and those with one keep it.
func TestFailsafe(t *testing.T) {
	var f Failsafe
	const text = `{"in":[{"protocol":"tcp","first":22,"last":22}],"out":[{"protocol":"udp","first":53,"last":54,"net":"192.0.2.0/24"}]}`
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		t.Fatal(err)
	}
	if again, err := json.Marshal(f); err != nil || string(again) != text {
		t.Errorf("%s, %v", again, err)
	}
	for _, c := range []struct {
		direction Direction
		peer      string
		protocol  Protocol
		port      uint16
		open      bool
	}{
		{Ingress, "192.0.2.1", TCP, 22, true},
		{Ingress, "2001:db8::1", TCP, 22, true},
		{Ingress, "192.0.2.1", UDP, 22, false},
		{Ingress, "192.0.2.1", UDP, 53, false},
		{Egress, "192.0.2.1", UDP, 54, true},
		{Egress, "192.0.3.1", UDP, 54, false},
		{Egress, "2001:db8::1", UDP, 54, false},
		{Egress, "192.0.2.1", UDP, 55, false},
	} {
		if got := f.Open(c.direction, netip.MustParseAddr(c.peer), c.protocol, c.port); got != c.open {
			t.Errorf("%s %s %s/%d: open %v", c.direction, c.peer, c.protocol, c.port, got)
		}
	}
}
