package ctl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// PluginName is felixctl's name as a plugin of kubectl.
const PluginName = "kubectl-felixlike"

// Where the manifests put the agents.
const (
	pluginNamespace = "felixlike-system"
	pluginSelector  = "app.kubernetes.io/name=felixlike,app.kubernetes.io/component=agent"
	pluginContainer = "agent"
)

const pluginHelp = `kubectl felixlike --node NODE COMMAND...

Run a command of felixctl in the agent's pod on a node, by kubectl exec:

  kubectl felixlike --node worker-1 status
  kubectl felixlike --node worker-1 trace --from shop/web --to shop/db --port 5432/tcp
  kubectl felixlike --node worker-1 preview -f - < policy.yaml

Before the command, --node and -n/--namespace (default felixlike-system) say which
pod is meant, and --context and --kubeconfig are handed to kubectl. Files are those
of the pod: hand yours over by standard input (-f -).

The exit code is that of the command.`

// IsPlugin reports whether the program was started as a plugin of kubectl.
func IsPlugin(argv0 string) bool { return filepath.Base(argv0) == PluginName }

// plugin has the arguments of the plugin.
type plugin struct {
	node, namespace string
	// kubectl are arguments for kubectl, command is felixctl's.
	kubectl, command []string
}

// RunPlugin runs the command in the pod of the agent, and returns its exit code.
func RunPlugin(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	p, err := parsePlugin(args)
	if err != nil {
		return 2, err
	}
	if len(p.command) == 0 {
		fmt.Fprintln(stdout, pluginHelp)
		return 0, nil
	}
	pod, err := p.pod(ctx, stderr)
	if err != nil {
		return 2, err
	}
	kubectl := exec.CommandContext(ctx, "kubectl", p.execArgs(pod)...)
	kubectl.Stdin, kubectl.Stdout, kubectl.Stderr = stdin, stdout, stderr
	var exit *exec.ExitError
	if err := kubectl.Run(); errors.As(err, &exit) {
		return exit.ExitCode(), nil
	} else if err != nil {
		return 2, fmt.Errorf("run kubectl: %w", err)
	}
	return 0, nil
}

// parsePlugin takes the plugin's own flags from before the command.
func parsePlugin(args []string) (plugin, error) {
	p := plugin{namespace: pluginNamespace}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		name, value, given := strings.Cut(args[0], "=")
		if name == "-h" || name == "--help" {
			return plugin{}, nil
		}
		args = args[1:]
		if !given {
			if len(args) == 0 {
				return p, fmt.Errorf("%s: a value is missing", name)
			}
			value, args = args[0], args[1:]
		}
		switch name {
		case "--node":
			p.node = value
		case "-n", "--namespace":
			p.namespace = value
		case "--context", "--kubeconfig":
			p.kubectl = append(p.kubectl, name, value)
		default:
			return p, fmt.Errorf("unknown flag %s before the command: want --node, --namespace, --context or --kubeconfig", name)
		}
	}
	p.command = args
	if len(args) > 0 && p.node == "" {
		return p, errors.New("--node NODE is missing: each node has its own agent")
	}
	return p, nil
}

// pod finds the agent's pod on the node.
func (p plugin) pod(ctx context.Context, stderr io.Writer) (string, error) {
	kubectl := exec.CommandContext(ctx, "kubectl", append(p.base(), "get", "pods", "-l", pluginSelector,
		"--field-selector", "spec.nodeName="+p.node+",status.phase=Running", "-o", "name")...)
	kubectl.Stderr = stderr
	out, err := kubectl.Output()
	if err != nil {
		return "", fmt.Errorf("find the agent's pod on node %s: kubectl: %w", p.node, err)
	}
	names := strings.Fields(string(out))
	if len(names) == 0 {
		return "", fmt.Errorf("no agent runs on node %s: namespace %s has no running pod with the labels %s there", p.node, p.namespace, pluginSelector)
	}
	return names[0], nil
}

func (p plugin) base() []string {
	return append(append([]string{}, p.kubectl...), "--namespace", p.namespace)
}

// execArgs are kubectl's: a terminal is given only where there is one, so that
// output can be piped.
func (p plugin) execArgs(pod string) []string {
	args := append(p.base(), "exec", "--stdin")
	if isTerminal(os.Stdin) && isTerminal(os.Stdout) {
		args = append(args, "--tty")
	}
	return append(append(args, pod, "--container", pluginContainer, "--", "felixctl"), p.command...)
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
