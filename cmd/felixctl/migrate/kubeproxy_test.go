package migrate

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/felixlike/report"
)

// proxyObjects are kube-proxy's objects with a configuration, a server and an affinity.
func proxyObjects(config, server, affinity string) string {
	return `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: kube-proxy, namespace: kube-system}, spec: {selector: {matchLabels: {k8s-app: kube-proxy}},
  template: {spec: {` + affinity + `containers: [{name: kube-proxy, image: registry.example/kube-proxy:v1.35.0, command: [/usr/local/bin/kube-proxy, --config=/x]}]}}}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-proxy, namespace: kube-system}, data: {
  config.conf: "{apiVersion: kubeproxy.config.k8s.io/v1alpha1, kind: KubeProxyConfiguration, ` + config + `}",
  kubeconfig.conf: "{clusters: [{name: default, cluster: {server: '` + server + `'}}]}"}}
`
}

// TestKubeProxy: the settings of kube-proxy that the agents have are carried over, the others are named, and end with exit code 1.
func TestKubeProxy(t *testing.T) {
	const server = "https://192.0.2.10:6443"
	for name, c := range map[string]struct {
		config, server string
		lost           []string
		want           proxyConfig
	}{
		"as it is": {"mode: nftables", server, nil, proxyConfig{"full", []string{"192.0.2.10:6443"}, nil}},
		"port addresses": {
			"mode: nftables, nodePortAddresses: [192.0.2.0/24]", server, nil,
			proxyConfig{"full", []string{"192.0.2.10:6443"}, []string{"192.0.2.0/24"}},
		},
		"primary addresses": {"mode: nftables, nodePortAddresses: [primary]", server, []string{"nodePortAddresses"}, proxyConfig{"full", []string{"192.0.2.10:6443"}, nil}},
		"iptables": {
			"iptables: {masqueradeAll: true}", "https://api.example:6443",
			[]string{"iptables.localhostNodePorts", "iptables.masqueradeAll", "kubeconfig.conf server"},
			proxyConfig{"full", []string{"api.example:6443"}, nil},
		},
		"no ports of localhost": {"iptables: {localhostNodePorts: false}", server, nil, proxyConfig{"full", []string{"192.0.2.10:6443"}, nil}},
		"IPVS":                  {"mode: ipvs, ipvs: {scheduler: lc}, detectLocalMode: BridgeInterface", server, []string{"detectLocalMode", "ipvs.scheduler"}, proxyConfig{"full", []string{"192.0.2.10:6443"}, nil}},
		"no server":             {"mode: nftables", "", []string{"kubeconfig.conf server"}, proxyConfig{"full", []string{"API-SERVER:6443"}, nil}},
	} {
		out, _, err := run(proxyObjects(c.config, c.server, ""), "kube-proxy", "-f", "-", "-o", "json")
		var m proxyMove
		if bad := json.Unmarshal([]byte(out), &m); bad != nil || (err != nil) != (c.lost != nil) || err != nil && !errors.Is(err, report.ErrFaults) {
			t.Fatalf("%s: %v, %v\n%s", name, err, bad, out)
		}
		var lost []string
		for _, s := range m.Settings {
			if s.Lost {
				lost = append(lost, s.Field)
			}
		}
		slices.Sort(lost)
		if !slices.Equal(lost, c.lost) || m.Config.ServiceProxy != c.want.ServiceProxy || !slices.Equal(m.Config.APIServer, c.want.APIServer) || !slices.Equal(m.Config.NodePortAddresses, c.want.NodePortAddresses) {
			t.Errorf("%s: lost %q, settings %+v", name, lost, m.Config)
		}
	}
}

// TestKubeProxySteps: the steps name the objects of the cluster, and the patch keeps an affinity.
func TestKubeProxySteps(t *testing.T) {
	const affinity = `affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}, {matchExpressions: [{key: b, operator: Exists}]}]}}}, `
	out, _, err := run(proxyObjects("mode: nftables", "https://192.0.2.10:6443", affinity), "kube-proxy", "-f", "-")
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile("testdata/kube-proxy.txt")
	if err != nil || out != string(golden) {
		t.Errorf("%v: got\n%s", err, out)
	}
	if n := strings.Count(out, `{"key":"felixlike.io/services","operator":"DoesNotExist"}`); n != 2 {
		t.Errorf("%d terms keep kube-proxy away from nodes that have moved, want 2", n)
	}
}

// TestKubeProxyRefused: input that is not kube-proxy's is an error that says what is missing.
func TestKubeProxyRefused(t *testing.T) {
	whole := proxyObjects("mode: nftables", "https://192.0.2.10:6443", "")
	daemons, settings, _ := strings.Cut(whole, "---\n")
	for want, text := range map[string]string{
		"no DaemonSet of kube-proxy":             settings,
		"no KubeProxyConfiguration in the input": daemons,
		"a second DaemonSet":                     whole + "---\n" + daemons,
		"data.config.conf":                       daemons + "---\n" + strings.Replace(settings, "mode: nftables", "mode: [x]", 1),
	} {
		if _, _, err := run(text, "kube-proxy", "-f", "-"); err == nil || errors.Is(err, report.ErrFaults) || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}
