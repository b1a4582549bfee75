package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

// TestFewestPrivileges runs the agent and Open vSwitch's supervisor with the capabilities that the DaemonSets
// give to their containers, and without all others. Pods get a network, policy is enforced, a foreign flush
// is repaired, and a restarted agent goes on.
func TestFewestPrivileges(t *testing.T) {
	t.Parallel()
	needLab(t)
	for _, backend := range []string{config.NFTables, config.IPTablesLegacy, config.OpenFlow} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			l := newLabWith(t, lab.Config{Backend: backend, ServeCNI: true, Agent: privileged(t)})
			set(t, l, state(t, threeNodes, onlyFromC))
			n := l.Node("node1")
			supervise(t, n)
			judge := func() {
				t.Helper()
				expect(t, l, true, "x/c", "x/a", model.TCP, 80)
				expect(t, l, false, "x/b", "x/a", model.TCP, 80)
			}
			judge()
			flush := "nft flush ruleset"
			if backend == config.IPTablesLegacy {
				flush = "iptables-legacy -w -F; ip6tables-legacy -w -F"
			}
			shell(t, n, flush)
			eventually.True(t, "the agent has repaired the flush", func() bool {
				status, err := n.Status(t.Context())
				return err == nil && status.Repairs.Total > 0
			})
			judge()
			if err := l.RestartAgent(t.Context(), n.Name()); err != nil {
				t.Fatal(err)
			}
			judge()
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.AgentPID()))
			if err != nil {
				t.Fatal(err)
			}
			// 12, 13 and 21 are NET_ADMIN, NET_RAW and SYS_ADMIN (linux/capability.h).
			if want := fmt.Sprintf("CapEff:\t%016x\n", 1<<12|1<<13|1<<21); !strings.Contains(string(text), want) {
				t.Errorf("the agent's capabilities are not %s:\n%s", want, text)
			}
		})
	}
}

// privileged returns a program that runs the agent's binary with the capabilities of the DaemonSets: those of the
// container "ovs" for its command ovs, those of the container "agent" for all else.
func privileged(t *testing.T) string {
	t.Helper()
	sets := map[string]string{}
	for _, file := range []string{"daemonset.yaml", "ovs.yaml"} {
		text, err := os.ReadFile("../../deploy/base/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var daemons appsv1.DaemonSet
		if err := yaml.Unmarshal(text, &daemons); err != nil {
			t.Fatal(err)
		}
		for _, c := range daemons.Spec.Template.Spec.Containers {
			set := "-all"
			for _, name := range c.SecurityContext.Capabilities.Add {
				set += ",+" + strings.ToLower(string(name))
			}
			sets[c.Name] = set
		}
	}
	if len(sets) != 2 || sets["agent"] == "" || sets["ovs"] == "" {
		t.Fatalf("capabilities %v", sets)
	}
	program := filepath.Join(t.TempDir(), lab.AgentProgram)
	script := fmt.Sprintf("#!/bin/sh\nset=%s\n[ \"$1\" = ovs ] && set=%s\nexec setpriv --no-new-privs --bounding-set=\"$set\" -- %s \"$@\"\n",
		sets["agent"], sets["ovs"], strconv.Quote(filepath.Join(buildDir, lab.AgentProgram)))
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return program
}
