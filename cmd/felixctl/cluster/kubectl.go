package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/felixlike/felixlike/cmd/felixctl/labs"
	"github.com/felixlike/felixlike/felixlike/control"
)

// Where the manifests put the agents.
const (
	namespace = "felixlike-system"
	selector  = "app.kubernetes.io/name=felixlike,app.kubernetes.io/component=agent"
	container = "agent"
)

// agent is the agent of a node.
type agent struct {
	Node string
	// Pod is empty if the node has none.
	Pod string
	// Fault is the reason why the agent cannot be asked; empty if it can.
	Fault string
	// Ready is the readiness that kubelet's probe has found.
	Ready bool
	// Version is that of the pod's manifest.
	Version string
}

// client runs kubectl in a namespace of the cluster.
type client struct {
	namespace string
	// flags are passed on to kubectl.
	flags []string
	// ofContext leaves the namespace to kubectl, which takes that of its context.
	ofContext bool
}

func (k client) kubectl(ctx context.Context, args ...string) *exec.Cmd {
	flags := k.flags
	if !k.ofContext {
		flags = slices.Concat(flags, []string{"--namespace", k.namespace})
	}
	cmd := exec.CommandContext(ctx, "kubectl", slices.Concat(flags, args)...)
	// A program that kubectl has begun, such as one for credentials, may keep the pipes open.
	cmd.WaitDelay = 5 * time.Second
	if k.namespace == "" && !k.ofContext { // kubectl would take that of its context, where pods of others may pose as agents
		cmd.Err = errors.New("the namespace is not known")
	}
	return cmd
}

// output runs kubectl and returns its standard output. The error has its standard error.
func (k client) output(ctx context.Context, args ...string) ([]byte, error) {
	return k.Kubectl(ctx, nil, args...)
}

// Kubectl is output with a standard input. It has a capital letter for netnamespace.Access.
func (k client) Kubectl(ctx context.Context, stdin []byte, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
	defer cancel()
	cmd := k.kubectl(ctx, args...)
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return nil, fmt.Errorf("kubectl %s: %w: %s", args[0], err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("kubectl %s: %w", args[0], err)
	}
	return out, nil
}

// get reads an object, or a list of objects.
func (k client) get(ctx context.Context, into any, what ...string) error {
	out, err := k.output(ctx, slices.Concat([]string{"get"}, what, []string{"-o", "json"})...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, into); err != nil {
		return fmt.Errorf("read %s: %w", what[0], err)
	}
	return nil
}

// apiServer returns the address behind the Service of the API server.
func (k client) apiServer(ctx context.Context) (string, error) {
	k.namespace = "default"
	var all discoveryv1.EndpointSliceList
	if err := k.get(ctx, &all, "endpointslices", "-l", discoveryv1.LabelServiceName+"=kubernetes"); err != nil {
		return "", err
	}
	for _, s := range all.Items {
		if len(s.Endpoints) > 0 && len(s.Endpoints[0].Addresses) > 0 && len(s.Ports) > 0 && s.Ports[0].Port != nil {
			return net.JoinHostPort(s.Endpoints[0].Addresses[0], strconv.Itoa(int(*s.Ports[0].Port))), nil
		}
	}
	return "", errors.New("the Service kubernetes has no endpoint: name an address outside of the cluster by --outside ADDRESS:PORT")
}

// exec returns a command that runs felixctl in an agent's pod.
func (k client) exec(ctx context.Context, a agent, command []string, flags ...string) *exec.Cmd {
	args := slices.Concat([]string{"exec"}, flags, []string{"pod/" + a.Pod, "--container", container, "--", "felixctl"}, command)
	return k.kubectl(ctx, args...)
}

// nodeOf returns the node of a pod (namespace/name), or of node:NAME.
func (t target) nodeOf(ctx context.Context, end string) (string, error) {
	if node, is := strings.CutPrefix(end, "node:"); is {
		return node, nil
	}
	id, err := control.ParsePod(end)
	if err != nil {
		return "", fmt.Errorf("%q: must be namespace/name, or node:NAME", end)
	}
	if t.lab != "" {
		return labs.NodeOfPod(ctx, t.lab, end)
	}
	var pod corev1.Pod
	k := t.client
	k.namespace = id.Namespace
	// One word, so that no name is taken for a flag of kubectl.
	if err := k.get(ctx, &pod, "pod/"+id.Name); err != nil {
		return "", err
	}
	if pod.Spec.NodeName == "" {
		return "", fmt.Errorf("pod %s is on no node yet", end)
	}
	return pod.Spec.NodeName, nil
}

// passOn runs a command on the only node, and returns its exit code.
func (t target) passOn(ctx context.Context, command []string, io Streams) (int, error) {
	all, err := t.agents(ctx)
	if err != nil {
		return 2, err
	}
	at := usable(all)
	if fault := all[at].Fault; fault != "" {
		return 2, fmt.Errorf("node %s: %s", all[at].Node, fault)
	}
	flags := []string{"--stdin"}
	// A terminal only if there is one, so that output can be piped.
	if io.In == os.Stdin && isTerminal(os.Stdin) && isTerminal(os.Stdout) {
		flags = append(flags, "--tty")
	}
	cmd := t.exec(ctx, all[at], command, flags...)
	errs := &ending{to: io.Err}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = io.In, io.Out, errs
	code, err := exitCode(cmd.Run())
	if t.lab == "" && code != 0 && !errs.remote {
		code = 2 // kubectl's own failure is no answer of the command
	}
	return code, err
}

// ending passes standard error on, and looks for kubectl's line about a command that has failed in the pod.
type ending struct {
	to     io.Writer
	last   []byte
	remote bool
}

// Write looks at the text, and passes it on.
func (e *ending) Write(text []byte) (int, error) {
	e.last = append(e.last, text...)
	e.remote = e.remote || bytes.Contains(e.last, []byte(ended))
	e.last = slices.Clone(e.last[max(0, len(e.last)-len(ended)):])
	return e.to.Write(text)
}

// usable returns the first agent that is ready, else one that can be asked, else the first.
func usable(all []agent) int {
	at := slices.IndexFunc(all, func(a agent) bool { return a.Fault == "" && a.Ready })
	if at < 0 {
		at = max(0, slices.IndexFunc(all, func(a agent) bool { return a.Fault == "" }))
	}
	return at
}

// exitCode returns the exit code of a kubectl that has run. One that a signal has ended is an
// error.
func exitCode(err error) (int, error) {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	if err != nil {
		return 2, fmt.Errorf("run the command: %w", err)
	}
	return 0, nil
}

// ended begins kubectl's line about a command that has run in the pod and failed. Without it,
// the exit code is that of kubectl itself.
const ended = "command terminated with exit code"

// remoteCode returns the exit code of a command in a pod, and the text that the command has
// written to standard error. It is an error if the command did not run to its end.
func remoteCode(err error, stderr []byte) (int, string, error) {
	code, err := exitCode(err)
	text, _, remote := strings.Cut(string(stderr), ended)
	text = strings.TrimSpace(text)
	switch {
	case err != nil:
		return 2, text, errors.Join(err, errors.New(text))
	case code != 0 && !remote:
		return 2, text, fmt.Errorf("kubectl exec: exit code %d: %s", code, text)
	}
	return code, text, nil
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Streams are the standard streams of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// target has the nodes and the cluster that a command is for.
type target struct {
	client
	// nodes are all nodes if empty.
	nodes []string
	// lab is the name of a lab whose nodes are meant instead; empty for a cluster.
	lab string
	// lastLines has the last log line of an agent that crashed read.
	lastLines bool
}

// Bounds of one request to all nodes. A node whose kubelet hangs costs nodeTimeout.
const (
	atOnce      = 16
	nodeTimeout = time.Minute
)
