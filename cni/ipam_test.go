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

// killed is host-local, killed at the end of ADD.
const killed = `#!/bin/sh
cat >/dev/null
cd "$DIR/felixlike"
case $CNI_COMMAND in
ADD)
	$RESERVE
	kill -9 $$
	;;
DEL) rm 10.9.0.2 ;;
esac
`

// TestKilledReservationIsUndone: a killed host-local leaves no reservation, also none without a sandbox: it makes the file of an address before
// it writes the sandbox.
func TestKilledReservationIsUndone(t *testing.T) {
	const owned, empty = `printf '%s\r\n%s' "$CNI_CONTAINERID" "$CNI_IFNAME" >10.9.0.2`, `: >fd09::2`
	for name, reserve := range map[string]string{"with a sandbox": owned, "without": empty, "one of each": owned + "; " + empty} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.Mkdir(filepath.Join(dir, "felixlike"), 0o700); err != nil {
				t.Fatal(err)
			}
			plugin := filepath.Join(dir, ipamPlugin)
			script := strings.NewReplacer("$DIR", dir, "$RESERVE", reserve).Replace(killed)
			if err := os.WriteFile(plugin, []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			i := &ipam{plugin: plugin, dir: dir}
			node := &model.Node{Name: "n", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("fd09::/64")}}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			_, err := i.add(ctx, node, "sandbox", "eth0", "/run/netns/x")
			cancel()
			if err == nil || !strings.Contains(err.Error(), "killed") {
				t.Errorf("error %v", err)
			}
			if held, err := i.reservations(); err != nil || len(held) > 0 {
				t.Errorf("held: %v, %v", held, err)
			}
		})
	}
}
