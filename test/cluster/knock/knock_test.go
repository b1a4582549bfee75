package knock

import (
	"net/netip"
	"testing"
	"time"
)

func TestTargets(t *testing.T) {
	all, err := Targets([]string{"10.0.0.4/30", "fd00::8/128"})
	if err != nil || len(all) != 5 || all[0] != netip.MustParseAddr("10.0.0.4") || all[4] != netip.MustParseAddr("fd00::8") {
		t.Error(all, err)
	}
	for _, bad := range []string{"10.0.0.0/16", "x"} {
		if _, err := Targets([]string{bad}); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

// TestReceivesItsOwnKnocks knocks at the loopback address.
func TestReceivesItsOwnKnocks(t *testing.T) {
	received := make(chan string, 10)
	k, err := Listen(t.Context(), func(from string) { received <- from })
	if err != nil {
		t.Skip("the port is taken here:", err)
	}
	defer k.Close()
	go k.Send(t.Context(), "me", []netip.Addr{netip.MustParseAddr("127.0.0.1")})
	want := map[string]bool{"me UDP 127.0.0.1": true, "me TCP 127.0.0.1": true}
	for len(want) > 0 {
		select {
		case line := <-received:
			if !want[line] {
				t.Errorf("received %q", line)
			}
			delete(want, line)
		case <-time.After(10 * time.Second):
			t.Fatalf("not received: %v", want)
		}
	}
}
