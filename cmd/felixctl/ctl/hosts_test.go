package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/hosts/boot"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/tablestest"
)

// TestHostsStateDir: without --state-dir, the file is where the agent of this pod looks for it.
func TestHostsStateDir(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: "+config.APIVersion+"\nkind: "+config.Kind+"\nstateDir: /other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "none")
	for _, test := range []struct {
		named, file string
		environ     []string
		want        string
	}{
		{"/named", file, nil, "/named"},
		{"", file, nil, "/other"},
		{"", none, nil, config.Defaults().StateDir},
		{"", none, []string{config.EnvName("stateDir") + "=/environment"}, "/environment"},
	} {
		if got := stateDirOf(test.named, test.file, test.environ); got != test.want {
			t.Errorf("%+v: %s", test, got)
		}
	}
}

// TestHostsOff: the table goes without an agent, the file says so to agents, and the command says what it opened. A table of others stays.
func TestHostsOff(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	ns.Run(t, "nft", "add table inet felixlike-hosts; add table inet felixlike")
	dir := t.TempDir()
	marker := filepath.Join(dir, "hosts", "off")
	policies := []*model.Policy{{ID: model.PolicyID{Tier: model.TierAdmin, API: model.AntreaCluster, Name: "all"}}, {ID: model.PolicyID{Tier: model.TierAdmin, API: model.AntreaCluster, Name: "web"}}}
	record, err := json.Marshal(boot.Record{Confirmed: &model.HostPolicies{Ingress: model.Applied{Admin: []model.PolicyID{policies[0].ID, policies[1].ID}}, Policies: policies}})
	if err == nil {
		err = errors.Join(os.Mkdir(filepath.Dir(marker), 0o700), os.WriteFile(filepath.Join(filepath.Dir(marker), boot.RecordFile), record, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"no longer in force on this node: antrea-cluster:all, antrea-cluster:web\nthe table inet felixlike-hosts is gone: every port of this node is open", "nothing was closed"} {
		var out bytes.Buffer
		if err := hostsOff(t.Context(), &out, dir, ns.FD); err != nil || !strings.Contains(out.String(), want) || !strings.Contains(out.String(), marker) {
			t.Errorf("%d: %v %q", i, err, out.String())
		}
		if left := strings.TrimSpace(ns.Run(t, "nft", "list", "tables")); left != "table inet felixlike" || !boot.Off(filepath.Dir(marker)) {
			t.Errorf("%d: left %q", i, left)
		}
	}
	for i, want := range []string{"within seconds", "were not off"} {
		var out bytes.Buffer
		if err := hostsOn(&out, dir); err != nil || !strings.Contains(out.String(), want) || boot.Off(filepath.Dir(marker)) {
			t.Errorf("on, %d: %v %q", i, err, out.String())
		}
	}
	// An emergency: the table goes even if no file can be written.
	ns.Run(t, "nft", "add table inet felixlike-hosts")
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := hostsOff(t.Context(), &out, file, ns.FD); err == nil || !strings.Contains(err.Error(), "puts the policies back") || !strings.Contains(out.String(), "policies that were not confirmed\n") {
		t.Errorf("%v %q", err, out.String())
	}
}
