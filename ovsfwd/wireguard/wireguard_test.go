package wireguard

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/felixlike/felixlike/model"
)

func peer(n byte, sources ...string) Peer {
	p := Peer{Key: model.PublicKey{n}, Endpoint: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 50, n}), 51820)}
	for _, s := range sources {
		p.Sources = append(p.Sources, netip.MustParsePrefix(s))
	}
	return p
}

// observed is the peer as the kernel reports it: addresses of IPv4 in 16 bytes.
func observed(p Peer) wgtypes.Peer {
	out := wgtypes.Peer{PublicKey: wgtypes.Key(p.Key), Endpoint: &net.UDPAddr{IP: net.IP(p.Endpoint.Addr().AsSlice()).To16(), Port: int(p.Endpoint.Port())}}
	for _, s := range p.Sources {
		out.AllowedIPs = append(out.AllowedIPs, netOf(s))
	}
	return out
}

func text(all []change) string {
	var lines []string
	for _, c := range all {
		line := fmt.Sprintf("%d %s:", c.peer.PublicKey[0], c.what)
		if c.peer.Remove {
			line += " remove"
		}
		if c.peer.Endpoint != nil {
			line += " at " + c.peer.Endpoint.String()
		}
		if c.peer.ReplaceAllowedIPs {
			line += " only"
		}
		for _, a := range c.peer.AllowedIPs {
			line += " " + a.String()
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// TestChanges: a peer that is as desired is not written, one that is not desired goes first, and sources are replaced only if
// one has to go.
func TestChanges(t *testing.T) {
	two, both := peer(2, "10.10.2.0/24", "192.168.50.2/32"), peer(2, "10.10.2.0/24", "192.168.50.2/32", "fd00:10:0:2::/64")
	elsewhere := observed(two)
	elsewhere.Endpoint = &net.UDPAddr{IP: net.IPv4(192, 168, 50, 9), Port: 51820}
	for _, c := range []struct {
		name   string
		wanted []Peer
		have   []wgtypes.Peer
		want   string
	}{
		{"as desired", []Peer{both}, []wgtypes.Peer{observed(both)}, ""},
		{"new", []Peer{two}, nil, "2 missing: at 192.168.50.2:51820 10.10.2.0/24 192.168.50.2/32"},
		{"stale", nil, []wgtypes.Peer{observed(two)}, "2 foreign: remove"},
		{"another key", []Peer{peer(3, "10.10.2.0/24")}, []wgtypes.Peer{observed(two)}, "2 foreign: remove; 3 missing: at 192.168.50.3:51820 10.10.2.0/24"},
		{"one more source", []Peer{both}, []wgtypes.Peer{observed(two)}, "2 other allowed IPs: fd00:10:0:2::/64"},
		{"one source less", []Peer{two}, []wgtypes.Peer{observed(both)}, "2 other allowed IPs: only 10.10.2.0/24 192.168.50.2/32"},
		{"everything allowed", []Peer{two}, []wgtypes.Peer{observed(peer(2, "0.0.0.0/0"))}, "2 other allowed IPs: only 10.10.2.0/24 192.168.50.2/32"},
		{"elsewhere", []Peer{two}, []wgtypes.Peer{elsewhere}, "2 another endpoint: at 192.168.50.2:51820"},
	} {
		if got := text(changes(c.wanted, c.have)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestKey: the key is made once, only root may read it, and no text of it is the key.
func TestKey(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	made, err := LoadKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, KeyFile)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	again, err := LoadKey(dir)
	if err != nil || again != made || made.Public().IsZero() {
		t.Fatalf("another key after a restart: %v, %v", again.Public(), err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	private, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []string{fmt.Sprint(made), fmt.Sprintf("%+v", made), fmt.Sprintf("%#v", made)} {
		if strings.Contains(shown, strings.TrimSpace(string(private))) || shown != "(private key)" {
			t.Errorf("the key is shown as %s", shown)
		}
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("files %v, %v", files, err)
	}
}

// TestBadKey: a file without a key is named, and neither shown nor replaced.
func TestBadKey(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, filepath.Dir(KeyFile)), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "secret", strings.Repeat("A", 43) + "="} {
		if err := os.WriteFile(filepath.Join(dir, KeyFile), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadKey(dir)
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, KeyFile)) || bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
		if now, err := os.ReadFile(filepath.Join(dir, KeyFile)); err != nil || string(now) != bad {
			t.Errorf("%q became %q, %v", bad, now, err)
		}
	}
}
