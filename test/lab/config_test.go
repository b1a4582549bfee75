package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBadChoicesFailBeforeAnythingIsMade(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Tunnel: "gnv"}, `tunnel: "gnv" is not one of geneve, vxlan, gre`},
		{Config{Datapath: "kernel"}, `datapath: "kernel" is not one of auto, system, netdev`},
		{Config{Backend: "ebpf"}, `backend: "ebpf" is not one of nftables`},
		{Config{LogLevel: "loud"}, `logLevel: "loud" is not one of`},
	} {
		c.config.Name, c.config.Root, c.config.Agent = "bad", filepath.Join(t.TempDir(), "labs"), "/bin/true"
		if err := c.config.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
		if Available() == nil {
			if _, err := Up(t.Context(), c.config); err == nil {
				t.Errorf("%s: a lab came up", c.want)
			}
		}
		if _, err := os.Stat(c.config.Root); err == nil {
			t.Errorf("%s: something was made", c.want)
		}
	}
}
