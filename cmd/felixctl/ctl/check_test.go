package ctl

import (
	"errors"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cni/install"
	"github.com/felixlike/felixlike/felixlike/control"
)

// TestHostPoliciesNeedNFTables: a node without nf_tables is named, and check fails once policies apply to it.
func TestHostPoliciesNeedNFTables(t *testing.T) {
	none := errors.New("protocol not supported")
	with := &control.Hosts{Policies: []string{"clusternetworkpolicy.crd.antrea.io/all"}}
	for _, c := range []struct {
		name  string
		err   error
		hosts *control.Hosts
		level install.Level
		want  string
	}{
		{"nf_tables", nil, with, 0, ""},
		{"no agent", none, nil, install.Noted, "they need nf_tables under every backend, and cannot be in force here: protocol not supported"},
		{"no policy", none, &control.Hosts{State: control.HostsNone}, install.Noted, "they need nf_tables"},
		{"policies", none, with, install.Missing, "this node is open: clusternetworkpolicy.crd.antrea.io/all: they need nf_tables"},
	} {
		got := hostPolicies(c.err, c.hosts)
		if c.level == 0 {
			if len(got) > 0 {
				t.Errorf("%s: %v", c.name, got)
			}
		} else if len(got) != 1 || got[0].Level != c.level || !strings.HasPrefix(got[0].Detail, c.want) {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
