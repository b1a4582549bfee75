package cni

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/model"
)

// killed is host-local, killed when it has reserved one address.
const killed = `#!/bin/sh
cat >/dev/null
case $CNI_COMMAND in
ADD)
	mkdir -p "$DIR/felixlike"
	printf '%s\r\n%s' "$CNI_CONTAINERID" "$CNI_IFNAME" >"$DIR/felixlike/10.9.0.2"
	kill -9 $$
	;;
DEL) rm "$DIR/felixlike/10.9.0.2" ;;
esac
`

// TestKilledReservationIsUndone: a killed host-local leaves no reservation.
func TestKilledReservationIsUndone(t *testing.T) {
	dir := t.TempDir()
	plugin := filepath.Join(dir, ipamPlugin)
	script := strings.ReplaceAll(killed, "$DIR", dir)
	if err := os.WriteFile(plugin, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	i := &ipam{plugin: plugin, dir: dir}
	node := &model.Node{Name: "n", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	_, err := i.add(ctx, node, "sandbox", "eth0", "/run/netns/x")
	cancel()
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("error %v", err)
	}
	if held, err := i.reservations(); err != nil || len(held) > 0 {
		t.Errorf("held: %v, %v", held, err)
	}
}
