package uplink

import (
	"strings"
	"testing"
)

// TestRestore gives everything back, and has the host listen to the uplink again.
func TestRestore(t *testing.T) {
	inNamespace(t)
	if _, err := Move("up0", "phy0"); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore("phy0"); err != nil {
		t.Fatal(err)
	}
	if out := ip(t, "-4 addr show dev up0"); !strings.Contains(out, "192.168.77.100/24") {
		t.Errorf("up0 has no address:\n%s", out)
	}
	if up, err := shielded("up0"); up || err != nil {
		t.Errorf("the host does not listen to the uplink: %v", err)
	}
	if _, err := Restore("phy0"); err != nil {
		t.Errorf("second time: %v", err)
	}
}
