package backend

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
)

func TestTryBackend(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root")
	}
	before := nftTables(t)
	for _, name := range config.BackendsInForce() {
		if err := tryConfig(t.Context(), Config{Name: name, Masquerade: true}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if after := nftTables(t); after != before {
		t.Errorf("tables of this namespace before and after:\n%s\n%s", before, after)
	}
}

func nftTables(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("nft", "list", "tables").CombinedOutput()
	if err != nil {
		t.Skipf("nft: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}
