package migrate

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
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
	const (
		server = "https://192.0.2.10:6443"
		local  = "healthzBindAddress: '127.0.0.1:10256'"
		taken  = local + ", nodePortAddresses: [192.0.2.0/24]"
	)
	for name, c := range map[string]struct {
		config, server string
		lost           []string
		want           proxyConfig
	}{
		"as it is":       {"mode: nftables", server, []string{"healthzBindAddress", "nodePortAddresses"}, proxyConfig{"full", []string{"192.0.2.10:6443"}, nil}},
		"port addresses": {"mode: nftables, " + taken, server, nil, proxyConfig{"full", []string{"192.0.2.10:6443"}, []string{"192.0.2.0/24"}}},
		"primary addresses": {
			"mode: nftables, nodePortAddresses: [primary], healthzBindAddress: '[::1]:10256'", server,
			[]string{"nodePortAddresses"},
			proxyConfig{"full", []string{"192.0.2.10:6443"}, nil},
		},
		"health on all addresses": {"mode: nftables, nodePortAddresses: [192.0.2.0/24]", server, []string{"healthzBindAddress"}, proxyConfig{"full", []string{"192.0.2.10:6443"}, []string{"192.0.2.0/24"}}},
		"port of HTTPS":           {"mode: nftables, " + taken, "https://[fd00::1]", nil, proxyConfig{"full", []string{"[fd00::1]:443"}, []string{"192.0.2.0/24"}}},
		"iptables": {
			"iptables: {masqueradeAll: true}, " + local, "https://api.example:6443",
			[]string{"iptables.localhostNodePorts", "iptables.masqueradeAll", "kubeconfig.conf server"},
			proxyConfig{"full", []string{"api.example:6443"}, nil},
		},
		"no ports of localhost": {"iptables: {localhostNodePorts: false}, " + local, server, nil, proxyConfig{"full", []string{"192.0.2.10:6443"}, nil}},
		"IPVS":                  {"mode: ipvs, ipvs: {scheduler: lc}, detectLocalMode: BridgeInterface, " + local, server, []string{"detectLocalMode", "ipvs.scheduler", "mode"}, proxyConfig{"full", []string{"192.0.2.10:6443"}, nil}},
		"no server":             {"mode: nftables, " + local, "", []string{"kubeconfig.conf server", "nodePortAddresses"}, proxyConfig{"full", []string{"API-SERVER:6443"}, nil}},
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

// daemonsWith are kube-proxy's objects with another spec of the DaemonSet.
func daemonsWith(spec, settings, server string) string {
	_, config, _ := strings.Cut(proxyObjects(settings, server, ""), "---\n")
	return "{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: kube-proxy, namespace: kube-system}, spec: " + spec + "}\n---\n" + config
}

// asKubeadm is the spec of kubeadm's DaemonSet, in short, with an affinity of which one term is empty.
const asKubeadm = `{selector: {matchLabels: {k8s-app: kube-proxy}}, template: {spec: {
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}, {}, {matchFields: [{key: metadata.name, operator: In, values: [b]}]}]}}},
  containers: [{name: kube-proxy, image: "registry.example/kube-proxy:v1.35.0", command: [/usr/local/bin/kube-proxy, --config=/x], volumeMounts: [
    {name: kube-proxy, mountPath: /var/lib/kube-proxy}, {name: xtables-lock, mountPath: /run/xtables.lock}, {name: lib-modules, mountPath: /lib/modules, readOnly: true}]}],
  volumes: [{name: kube-proxy, configMap: {name: kube-proxy}}, {name: xtables-lock, hostPath: {path: /run/xtables.lock, type: FileOrCreate}}, {name: lib-modules, hostPath: {path: /lib/modules}}, {name: other, hostPath: {path: /etc}}]}}}`

// TestKubeProxySteps: the steps name the objects of the cluster, the patch keeps an affinity, and the pod that cleans up has the node's files
// that kube-proxy has. With IPVS, nodes are drained, and no restart replaces all agents.
func TestKubeProxySteps(t *testing.T) {
	for file, settings := range map[string]string{
		"kube-proxy.txt":      "mode: nftables, nodePortAddresses: [192.0.2.0/24], healthzBindAddress: '127.0.0.1:10256'",
		"kube-proxy-ipvs.txt": "mode: ipvs, ipvs: {strictARP: true}",
	} {
		out, _, err := run(daemonsWith(asKubeadm, settings, "https://192.0.2.10:6443"), "kube-proxy", "-f", "-")
		if err != nil && !errors.Is(err, report.ErrFaults) {
			t.Fatal(err)
		}
		golden, err := os.ReadFile("testdata/" + file)
		if err != nil || out != string(golden) {
			t.Errorf("%s: %v: got\n%s", file, err, out)
		}
		if n := strings.Count(out, `{"key":"felixlike.io/services","operator":"DoesNotExist"}`); n != 2 || !strings.Contains(out, ",{},") {
			t.Errorf("%s: %d terms keep kube-proxy away from nodes that have moved, want 2, and one that is empty", file, n)
		}
	}
}

// words returns what programs get from the commands of the steps, by a shell in which kubectl prints its arguments.
func words(t *testing.T, input string) []string {
	t.Helper()
	out, _, err := run(input, "kube-proxy", "-f", "-", "-o", "json")
	var m proxyMove
	if bad := json.Unmarshal([]byte(out), &m); bad != nil || err != nil && !errors.Is(err, report.ErrFaults) {
		t.Fatalf("%v, %v\n%s", err, bad, out)
	}
	script := "kubectl() { printf '%s\\n' \"$@\"; }\n"
	for _, s := range append(m.Steps, m.Back...) {
		for _, command := range s.Commands {
			if !strings.Contains(command, " > ") {
				script += command + "\n"
			}
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir = t.TempDir()
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s\n%s", err, text, script)
	}
	if made, err := os.ReadDir(cmd.Dir); err != nil || len(made) > 0 {
		t.Errorf("%v: a command has made files: %v", err, made)
	}
	return strings.Split(string(text), "\n")
}

// TestKubeProxyForShells: whatever the objects hold, a shell hands it on as text, and a terminal shows it as text.
func TestKubeProxyForShells(t *testing.T) {
	got := words(t, daemonsWith(`{selector: {matchExpressions: [{key: tier, operator: In, values: [a, b]}]}, template: {spec: {
  affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: "x';touch b;'", operator: Exists}]}]}}},
  containers: [{name: first, image: other}, {name: kube-proxy, image: "i;touch c;$(touch d)'`+"`touch e`"+`\e[31m", command: ["/a';touch;'/kube-proxy"]}]}}}`,
		"mode: ipvs", "https://[fd00::1]:6443"))
	for _, want := range []string{
		"[fd00::1]:6443", "tier in (a,b)", "--image=i;touch c;$(touch d)'`touch e`?[31m",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no word %q in\n%s", want, strings.Join(got, "\n"))
		}
	}
	if all := strings.Join(got, "\n"); !strings.Contains(all, `x';touch b;'`) || !strings.Contains(all, `"command":["/a';touch;'/kube-proxy","--cleanup"]`) {
		t.Errorf("got\n%s", all)
	}
	out, _, _ := run(daemonsWith(strings.Replace(asKubeadm, "v1.35.0", `\e[31m\u202e`, 1), `mode: \"\\e[31m\"`, "https://192.0.2.10:6443"), "kube-proxy", "-f", "-")
	if !strings.Contains(out, "?[31m") || strings.ContainsAny(out, "\x1b\u202e") {
		t.Errorf("a terminal obeys\n%q", out)
	}
}

// TestKubeProxyProgram: the program that cleans up is kube-proxy's, of the container with its name.
func TestKubeProxyProgram(t *testing.T) {
	for containers, want := range map[string]string{
		"[{name: a, image: i, command: [/x/kube-proxy]}]":                                                  `"name":"cleanup","image":"i","command":["/x/kube-proxy","--cleanup"]`,
		"[{name: a, image: i, command: [/a]}, {name: kube-proxy, image: k, args: [/x/kube-proxy, -v]}]":    `"command":["/x/kube-proxy","--cleanup"]`,
		"[{name: kube-proxy, image: k, command: [/bin/sh, -c, 'exec /y/kube-proxy --config=$FILE'] }]":     `"command":["/y/kube-proxy","--cleanup"]`,
		"[{name: kube-proxy, image: k, command: [/bin/hyperkube, proxy, --config=/var/lib/kube-proxy/x]}]": `"command":["kube-proxy","--cleanup"]`,
	} {
		out := strings.Join(words(t, daemonsWith("{selector: {matchLabels: {a: b}}, template: {spec: {containers: "+containers+"}}}", "mode: nftables", "https://192.0.2.10")), "\n")
		if !strings.Contains(out, want) {
			t.Errorf("%s: no %s in\n%s", containers, want, out)
		}
	}
}

// TestKubeProxyRefused: without kube-proxy's objects, the error says which one is missing.
func TestKubeProxyRefused(t *testing.T) {
	whole := proxyObjects("mode: nftables", "https://192.0.2.10:6443", "")
	daemons, settings, _ := strings.Cut(whole, "---\n")
	for want, text := range map[string]string{
		"no DaemonSet of kube-proxy":             settings,
		"no KubeProxyConfiguration in the input": daemons,
		"a second DaemonSet":                     whole + "---\n" + daemons,
		"metadata.namespace: ":                   strings.Replace(whole, "namespace: kube-system", "namespace: 'a;b'", 1),
		"metadata.name: ":                        strings.Replace(whole, "name: kube-proxy", "name: $(reboot)", 1),
		"spec.selector: ":                        strings.Replace(whole, "matchLabels: {k8s-app: kube-proxy}", "matchLabels: {'a b;': c}", 1),
		"spec.selector: required":                strings.Replace(whole, "matchLabels: {k8s-app: kube-proxy}", "", 1),
		"data.config.conf":                       daemons + "---\n" + strings.Replace(settings, "mode: nftables", "mode: [x]", 1),
	} {
		if _, _, err := run(text, "kube-proxy", "-f", "-"); err == nil || errors.Is(err, report.ErrFaults) || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
}
