package ctl

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
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
	for i, want := range []string{"no longer in force on this node: clusternetworkpolicy.crd.antrea.io/all, clusternetworkpolicy.crd.antrea.io/web\nthe table inet felixlike-hosts is gone: every port of this node is open", "nothing was closed"} {
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

// TestHostsOfLab: with --lab the command acts on the node of a lab, whose supervisor names its namespace, and not on this machine.
func TestHostsOfLab(t *testing.T) {
	ns := tablestest.NewNamespace(t, "nft")
	ns.Run(t, "nft", "add table inet felixlike-hosts")
	root, err := os.MkdirTemp("", "labs") // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	node := labs.NodeDir(filepath.Join(root, "demo"), "n1")
	if err := os.MkdirAll(node, 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		c := hostsCommand()
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetOut(&out)
		c.SetArgs(append(args, "--lab", "demo/n1", "--lab-root", root))
		err := c.ExecuteContext(t.Context())
		return out.String(), err
	}
	if out, err := run("off"); err == nil || !strings.Contains(err.Error(), "lab demo does not run") {
		t.Errorf("without a supervisor: %q, %v", out, err)
	}
	l, err := net.Listen("unix", labs.Socket(root, "demo"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(labs.Status{Name: "demo", Nodes: []labs.NodeStatus{{Name: "n0", Namespace: "none"}, {Name: "n1", Namespace: ns.Name}}})
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	if out, err := run("off", "--state-dir", "/nowhere"); err == nil || !strings.Contains(err.Error(), "are both given") {
		t.Errorf("with --state-dir: %q, %v", out, err)
	}
	if left := ns.Run(t, "nft", "list", "tables"); !strings.Contains(left, "felixlike-hosts") {
		t.Fatalf("left %q", left)
	}
	dir := filepath.Join(labs.StateDir(node), "hosts")
	if out, err := run("off"); err != nil || !strings.Contains(out, "no longer in force") || ns.Run(t, "nft", "list", "tables") != "" || !boot.Off(dir) {
		t.Errorf("off: %q, %v", out, err)
	}
	if out, err := run("on"); err != nil || !strings.Contains(out, "within seconds") || boot.Off(dir) {
		t.Errorf("on: %q, %v", out, err)
	}
}
