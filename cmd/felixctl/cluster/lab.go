package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/agentflag"
	"github.com/felixlike/felixlike/cmd/felixctl/labs"
)

// ofWholeLab are the commands that answer for all nodes of a lab as they do for those of a cluster.
var ofWholeLab = []string{"status", "policies", "services", "drops", "diff"}

// labOf returns the lab that --lab or the environment names without a node, and the command without --lab, if the command answers for all nodes and the
// lab has several.
func labOf(args []string, env func(string) string, nodes func(lab string) ([]string, error)) (lab string, command []string) {
	if len(args) == 0 || !slices.Contains(ofWholeLab, args[0]) {
		return "", nil
	}
	lab = env(agentflag.LabVariable)
	if env(agentflag.SocketVariable) != "" {
		lab = ""
	}
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(args[i], "=")
		switch {
		case slices.Contains([]string{"-", "-h", "--help", "--socket", "--lab-root", "--node"}, name):
			return "", nil
		case name != "--lab":
			command = append(command, args[i])
		case given:
			lab = value
		case i+1 < len(args):
			i++
			lab = args[i]
		default:
			return "", nil
		}
	}
	if lab == "" || strings.Contains(lab, "/") {
		return "", nil
	}
	if all, err := nodes(lab); err != nil || len(all) < 2 {
		return "", nil // the command says what is wrong, or asks the only node
	}
	return lab, command
}

// LabOf returns the lab with several nodes that the arguments of felixctl ask as a whole, and the command; "" if they ask something else.
func LabOf(argv []string) (lab string, command []string) {
	if isPlugin(argv[0]) {
		return "", nil
	}
	return labOf(argv[1:], os.Getenv, func(lab string) ([]string, error) { return labs.Nodes("", lab) })
}

// RunLab runs a command for all nodes of a lab, and returns its exit code. With an error the exit code is 2.
func RunLab(ctx context.Context, lab string, command []string, io Streams) (int, error) {
	code, err := target{lab: lab}.run(ctx, command, io)
	if err != nil && strings.Contains(err.Error(), "unknown") { // a flag that only the command for one node has
		err = fmt.Errorf("%w; for one node of the lab: --lab %s/NODE", err, lab)
	}
	return code, err
}

// labAgents returns the agents of the lab's nodes. One that does not run gives no answer.
func (t target) labAgents() ([]agent, error) {
	nodes, err := labs.Nodes("", t.lab)
	if err != nil {
		return nil, err
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("lab %s has no node any more", t.lab)
	}
	var all []agent
	for _, n := range nodes {
		if len(t.nodes) > 0 && !slices.ContainsFunc(t.nodes, func(name string) bool { return labs.NodeFolder(name) == n }) {
			continue
		}
		all = append(all, agent{Node: n, Ready: true})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("lab %s has no node %s", t.lab, strings.Join(t.nodes, ", "))
	}
	return all, nil
}

// exec returns a command that runs felixctl with an agent: in its pod, or here for an agent of a lab.
func (t target) exec(ctx context.Context, a agent, command []string, flags ...string) *exec.Cmd {
	if t.lab == "" {
		return t.client.exec(ctx, a, command, flags...)
	}
	program, err := os.Executable()
	if err != nil {
		program = os.Args[0]
	}
	cmd := exec.CommandContext(ctx, program, slices.Insert(slices.Clone(command), 1, "--lab", t.lab+"/"+a.Node)...) // a "--" may follow
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }                                           // it ends its tools
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// codeOf returns the exit code of a command that exec has made, and what it has written to standard error. It is an error if the command did not run to its
// end.
func (t target) codeOf(err error, stderr []byte) (int, string, error) {
	if t.lab == "" {
		return remoteCode(err, stderr)
	}
	code, err := exitCode(err)
	return code, strings.TrimPrefix(strings.TrimSpace(string(stderr)), "felixctl: "), err
}
