// Package kubeproxy runs the real kube-proxy in network namespaces of tests and measurements.
package kubeproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/test/cluster/kubelab"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

// programVariable is the path of a kube-proxy; without it, the one that kubelab has built is used.
const programVariable = "FLX_TEST_KUBE_PROXY"

// Find returns the path of a kube-proxy. The error says how to get one.
func Find() (string, error) {
	return find(func(kit *kubelab.Kit) (string, error) { return kit.Bin("kube-proxy"), nil })
}

// Measured returns the path of a kube-proxy that is compiled as upstream's. It builds one if there is none, which takes minutes.
func Measured(ctx context.Context) (string, error) {
	return find(func(kit *kubelab.Kit) (string, error) { return kit.Peer(ctx) })
}

func find(built func(*kubelab.Kit) (string, error)) (path string, err error) {
	if path = os.Getenv(programVariable); path == "" {
		kit, err := kubelab.Find()
		if err != nil {
			return "", err
		}
		if path, err = built(kit); err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no kube-proxy: set %s, or have make test-cluster or bench-services build it: %w", programVariable, err)
	}
	return path, nil
}

// Config is how a kube-proxy runs.
type Config struct {
	// Program is its path, Mode "iptables" or "nftables".
	Program, Mode string
	// Node is the name of its node, API the address and port of the API server in the node's namespace. That server has one Node object:
	// kubernetestest's knows no field selectors.
	Node, API string
	// Pods are the prefixes of the cluster's pods.
	Pods []netip.Prefix
	// Dir is a folder for its configuration and its log.
	Dir string
}

// Log returns the file that it writes.
func (c Config) Log() string { return filepath.Join(c.Dir, "log") }

// Start starts it in a namespace. The caller ends it.
func (c Config) Start(ns *namespace.Namespace) (_ *exec.Cmd, err error) {
	var pods []string
	for _, p := range c.Pods {
		pods = append(pods, p.String())
	}
	kubeconfig, file := filepath.Join(c.Dir, "kubeconfig"), filepath.Join(c.Dir, "config.yaml")
	text, err := json.Marshal(map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": c.Mode, "hostnameOverride": c.Node,
		"clusterCIDR":      strings.Join(pods, ","),
		"clientConnection": map[string]any{"kubeconfig": kubeconfig, "contentType": "application/json", "qps": 100, "burst": 200},
		// These are of the machine, not of the namespace.
		"conntrack": map[string]any{"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.WriteFile(kubeconfig, kubernetestest.Kubeconfig("kube-proxy", c.API), 0o600), os.WriteFile(file, text, 0o600)); err != nil {
		return nil, err
	}
	log, err := os.Create(c.Log())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(c.Program, "--config", file, "--v=2")
	cmd.Stdout, cmd.Stderr = log, log
	return cmd, ns.Do(cmd.Start)
}
