package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/ctl"
	"github.com/felixlike/felixlike/cmd/felixctl/migrate"
	"github.com/felixlike/felixlike/felixlike/report"
)

// TestMoveFromKubeProxyParses: the commands for agents that felixctl migrate kube-proxy prints exist, for one node or for all, with their flags.
func TestMoveFromKubeProxyParses(t *testing.T) {
	for _, mode := range []string{"nftables", "ipvs"} {
		var out bytes.Buffer
		c := migrate.Command()
		c.SilenceErrors, c.SilenceUsage = true, true
		c.SetArgs([]string{"kube-proxy", "-f", "-", "-o", "json"})
		c.SetOut(&out)
		c.SetIn(strings.NewReader(`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: kube-proxy, namespace: kube-system}, spec: {selector: {matchLabels: {a: b}}, template: {spec: {containers: [{name: kube-proxy}]}}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-proxy}, data: {
  config.conf: "{kind: KubeProxyConfiguration, mode: ` + mode + `}", kubeconfig.conf: "{clusters: [{cluster: {server: 'https://192.0.2.10:6443'}}]}"}}
`))
		type step struct{ Commands []string }
		var m struct{ Steps, Back []step }
		err := c.Execute()
		if bad := json.Unmarshal(out.Bytes(), &m); bad != nil || !errors.Is(err, report.ErrFaults) {
			t.Fatalf("%s: %v, %v", mode, err, bad)
		}
		n := 0
		for _, s := range append(m.Steps, m.Back...) {
			for _, command := range s.Commands {
				args, is := strings.CutPrefix(command, "kubectl felixlike ")
				if !is {
					continue
				}
				n++
				if err := parses(strings.Fields(args)); err != nil {
					t.Errorf("%s: %s: %v", mode, command, err)
				}
			}
		}
		if n < 4 {
			t.Errorf("%s: %d commands for agents", mode, n)
		}
	}
	if parses([]string{"check", "--service-proxy", "full"}) == nil {
		t.Error("check takes settings of a node without --node")
	}
}

// parses returns an error unless a command has the flags that it is given.
func parses(args []string) error {
	of, command, err := parse(args)
	if err != nil {
		return err
	}
	root := of.commands()
	if len(of.nodes) == 1 && !runsHere(command) {
		root = &cobra.Command{}
		root.AddCommand(ctl.Commands()...)
	}
	found, rest, err := root.Find(command)
	if err != nil {
		return err
	}
	return found.ParseFlags(rest)
}
