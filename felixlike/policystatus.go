package felixlike

import (
	"context"
	"log/slog"
	"os"
	"strings"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/kubernetes"
	"github.com/felixlike/felixlike/felixlike/netnamespaces"
	"github.com/felixlike/felixlike/felixlike/policystatus"
)

const (
	// namespaceFile has the namespace of a pod.
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
	// defaultNamespace is the namespace in deploy/, for an agent that is no pod.
	defaultNamespace = "felixlike-system"
)

// writePolicyStatus takes part in the election of the agent that writes the status of
// ClusterNetworkPolicies, if the datastore is an API server.
func writePolicyStatus(ctx context.Context, source datastore.Source, cfg *config.Effective, log *slog.Logger) error {
	s, ok := source.(*kubernetes.Source)
	if !ok {
		return nil
	}
	variant := ""
	if cfg.PipelineVariant == config.VariantOpenShift {
		variant = backend.Variant
	}
	return policystatus.Run(ctx, policystatus.Options{
		Client: s.Dynamic(), Node: cfg.NodeName, Namespace: agentNamespace(), Nodes: s.Nodes, Needed: s.HasClusterPolicies, Variant: variant,
		Log: log.With("component", "policystatus"), Timing: policystatus.DefaultTiming(),
	})
}

// changeNetNamespaces takes part in the election of the agent that makes the changes that annotations of NetNamespaces ask for, and gives numbers with
// pipelineVariant: openshift, if
// namespaces are isolated and the datastore is an API server.
func changeNetNamespaces(ctx context.Context, source datastore.Source, cfg *config.Effective, log *slog.Logger) error {
	s, ok := source.(*kubernetes.Source)
	if !ok || cfg.Isolation != config.IsolationNamespaces {
		return nil
	}
	number, needed := cfg.PipelineVariant == config.VariantOpenShift, s.HasNetNamespaces
	if number {
		needed = s.ServesNetNamespaces
	}
	return netnamespaces.Run(ctx, netnamespaces.Options{
		Client: s.Dynamic(), Node: cfg.NodeName, Namespace: agentNamespace(), Nodes: s.Nodes, Needed: needed, Number: number, Exists: s.HasNamespace,
		Log: log.With("component", "netnamespaces"), Timing: netnamespaces.DefaultTiming(),
	})
}

// agentNamespace returns the namespace of the agents.
func agentNamespace() string {
	text, err := os.ReadFile(namespaceFile)
	if name := strings.TrimSpace(string(text)); err == nil && name != "" {
		return name
	}
	return defaultNamespace
}
