package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/felixlike/felixlike/cmd/felixctl/netnamespace"
	"github.com/felixlike/felixlike/cmd/felixctl/ui"
	"github.com/felixlike/felixlike/felixlike/report"
)

// allNodes is the flag by which felixctl learns that a cluster is meant.
const allNodes = "--all-nodes"

// PluginName is felixctl's name as a plugin of kubectl.
const PluginName = "kubectl-felixlike"

const help = `kubectl felixlike [--node NODE]... COMMAND...

Run a command of felixctl in the agents' pods, by kubectl exec.

With one --node, any command runs on that node:

  kubectl felixlike --node worker-1 dump
  kubectl felixlike --node worker-1 preview -f policy.yaml

reach answers for the whole cluster, and takes any node without it. trace finds the nodes of
both ends, and they answer together:

  kubectl felixlike trace --from shop/web --to service:shop/db --port 5432/tcp

Without --node these commands answer for all Linux nodes, with several --node for these:

  status       one row a node, faulty nodes first; --wait 2m waits until all are ready
  check        the findings of all nodes, each once; --traffic sends packets between test pods
  version      the agents' versions, and whether this felixctl fits
  policies     the rules' counters, summed
  services     the ports of Services, and the nodes that serve them otherwise
  stage        do not enforce a policy, and count what it would deny; enforce ends that
  preview      what a change of policies does; files are read here, one node answers
  drops        denied packets of all nodes
  diff A B     the nodes where two states differ, as in diff live wanted
  backend get  the backend in force on each node
  backend set  one node after the other; it stops at the first one that fails
  diags        one archive with the diagnostics and logs of all nodes
  netnamespace the numbers of namespaces; join, isolate, global (without --node)
  ui           pages about the cluster, for your browser; they are served here
  migrate      convert policies of Calico, Cilium and others; it reads files, and asks no agent

Each of them has --help. Before the command:

  --node NODE          may be repeated
  -n, --namespace NS   the namespace that status, policies and drops are asked about, and of
                       the policy of stage and enforce; after the command it means the same
  --agents-namespace NS   where the agents run (default felixlike-system, else the namespace
                       in the ClusterRoleBinding felixlike)
  --context, --kubeconfig   for kubectl

"felixctl" does the same if its first flag is --node, --all-nodes, --context or --kubeconfig:
"felixctl --node NODE COMMAND", "felixctl --all-nodes COMMAND".
Other commands than preview, stage and migrate read the files of the pod: use standard input for your
own (-).

Exit codes: for one node, as the command ends, or 2 if kubectl fails. For several
nodes: 0 all are as expected; 1 one is not; 2 wrong usage, or a node gave no answer.`

// Wanted reports whether the arguments of a program are for a cluster: it is the plugin of
// kubectl, or they begin with a flag that names a node or a cluster.
func Wanted(argv []string) bool {
	if isPlugin(argv[0]) {
		return true
	}
	if len(argv) < 2 {
		return false
	}
	name, _, _ := strings.Cut(argv[1], "=")
	return slices.Contains([]string{"--node", allNodes, "--context", "--kubeconfig"}, name)
}

func isPlugin(program string) bool {
	return strings.TrimSuffix(filepath.Base(program), ".exe") == PluginName
}

// migrateName is the command that needs no cluster.
const migrateName = "migrate"

// runsHere reports whether a command runs here and not on the node: ui, migrate, stage, enforce, and check --traffic.
func runsHere(command []string) bool {
	return slices.Contains([]string{ui.CommandName, migrateName, stageName, enforceName}, command[0]) || command[0] == "check" && slices.ContainsFunc(command, func(a string) bool { return a == "--traffic" || a == "--traffic=true" })
}

// passesOn reports whether one node runs a command as it is, --help too.
func (t target) passesOn(command []string) bool {
	return len(t.nodes) == 1 && !runsHere(command) || command[0] == "reach" && len(t.nodes) == 0
}

// Run runs the command that the arguments name, without the program's own name, and
// returns its exit code. With an error the exit code is 2.
func Run(ctx context.Context, args []string, io Streams) (int, error) {
	t, command, err := parse(args)
	switch {
	case err != nil:
		return 2, err
	case len(command) == 0:
		fmt.Fprintln(io.Out, help)
		return 0, nil
	case slices.Contains([]string{migrateName, stageName, enforceName}, command[0]): // the last two locate the agents, unless they read a file
	case t.passesOn(command) || !slices.Contains(command, "--help") && !slices.Contains(command, "-h"):
		if err := t.locate(ctx, io.Err); err != nil {
			return 2, err
		}
	}
	t.lastLines = command[0] == "status"
	switch {
	case command[0] == netnamespace.CommandName && len(t.nodes) > 0:
		return 2, errors.New("netnamespace is for the whole cluster: leave out --node")
	case len(t.nodes) == 1 && command[0] == previewName:
		var text []byte
		if command, text, err = withFiles(command, io.In); err != nil {
			return 2, err
		}
		if text != nil {
			io.In = bytes.NewReader(text)
		}
		return t.passOn(ctx, command, io)
	case t.passesOn(command):
		return t.passOn(ctx, command, io)
	}
	return t.run(ctx, command, io)
}

// run runs a command that answers for several nodes.
func (t target) run(ctx context.Context, command []string, io Streams) (int, error) {
	root := t.commands()
	if found, _, err := root.Find(command); err != nil || found == root {
		return 2, fmt.Errorf("%s is for one node: give one --node NODE", command[0])
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	root.SetArgs(command)
	root.SetIn(io.In)
	root.SetOut(io.Out)
	root.SetErr(io.Err)
	var code exited
	switch err := root.ExecuteContext(ctx); {
	case err == nil:
		return 0, nil
	case errors.As(err, &code):
		return int(code), nil
	case errors.Is(err, report.ErrFaults):
		return 1, nil // the text is printed
	default:
		return 2, err
	}
}

// exited is the exit code of a command whose output is printed.
type exited int

func (e exited) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// namespaced are the commands that can be asked about one namespace.
var namespaced = []string{"status", "policies", "drops", stageName, enforceName}

// agentsNamespace is the flag with the namespace of the agents.
const agentsNamespace = "--agents-namespace"

// parse takes the target's flags from before the command, and gives -n to the command.
func parse(args []string) (target, []string, error) {
	var t target
	about := ""
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		name, value, given := strings.Cut(args[0], "=")
		if name == "-h" || name == "--help" {
			return t, nil, nil
		}
		args = args[1:]
		if name == allNodes && !given {
			continue // it is the default
		}
		if !given {
			if len(args) == 0 {
				return t, nil, fmt.Errorf("%s: a value is missing", name)
			}
			value, args = args[0], args[1:]
		}
		switch name {
		case "--node":
			t.nodes = append(t.nodes, value)
		case "-n", "--namespace":
			about = value
		case agentsNamespace:
			t.namespace = value
		case "--context", "--kubeconfig":
			t.flags = append(t.flags, name, value)
		default:
			return t, nil, fmt.Errorf("unknown flag %s before the command: want --node, --all-nodes, --namespace, --agents-namespace, --context or --kubeconfig", name)
		}
	}
	if about != "" && len(args) > 0 {
		if !slices.Contains(namespaced, args[0]) {
			return t, nil, fmt.Errorf("--namespace is the namespace that %s are asked about, and %s is not; where the agents run is %s", strings.Join(namespaced, ", "), args[0], agentsNamespace)
		}
		args = slices.Insert(slices.Clone(args), 1, "--namespace", about)
	}
	return t, args, nil
}
