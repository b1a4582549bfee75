package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/felixlike/felixlike/cmd/felixctl/trace/together"
	"github.com/felixlike/felixlike/internal/printable"
	"github.com/felixlike/felixlike/internal/servicelist"
)

func traceCommand(t target) *cobra.Command {
	return &cobra.Command{
		Use:   "trace FLAGS OF TRACE",
		Short: "Show why a packet passes or not: the nodes of both ends answer together",
		Long: `Find the nodes that a packet may meet, and have them answer together as felixctl trace does on
one node: by the policies, and by the programmed state of all these nodes. The flags are those
of felixctl trace (kubectl felixlike --node NODE trace --help), such as --live, --family, --all,
--short and -o json. TO may also be a Service (service:shop/db, db.shop.svc, or its address): its
endpoints are traced. A node that gives no answer is named, and only the policies answer for it.

Exit codes: 0 allowed; 1 denied, as the policies say; 2 wrong usage, or no answer; 3 the ways
disagree.`,
		Example:            "  kubectl felixlike trace --from shop/web --to service:shop/db --port 5432/tcp",
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			if slices.Contains(args, "-h") || slices.Contains(args, "--help") {
				return c.Help()
			}
			code, err := trace(c.Context(), t, append([]string{c.Name()}, args...), Streams{In: c.InOrStdin(), Out: c.OutOrStdout(), Err: c.ErrOrStderr()})
			if err == nil && code != 0 {
				err = exited(code)
			}
			return err
		},
	}
}

// tracing is a question that several nodes answer together.
type tracing struct {
	target  target
	command []string
	others  *together.Others
}

// trace has the nodes that the packet may meet answer together: any agent names them, and the first one that can be asked answers with what
// the others write of themselves. It returns the exit code.
func trace(ctx context.Context, t target, command []string, io Streams) (int, error) {
	q, err := newTracing(ctx, t, command, io.In)
	if err != nil {
		return 2, err
	}
	nodes, err := q.where(ctx)
	if err != nil {
		return 2, err
	}
	for _, n := range nodes[min(len(nodes), together.Most):] {
		q.others.Silence(n, fmt.Sprintf("at most %d nodes are asked together", together.Most))
	}
	t.nodes = nodes[:min(len(nodes), together.Most)] // none if both ends are outside: any agent says so
	agents, err := t.agents(ctx)
	if err != nil {
		return 2, err
	}
	at := usable(agents)
	for _, n := range slices.Backward(t.nodes) {
		if i := slices.IndexFunc(agents, func(a agent) bool { return a.Node == n && a.Fault == "" }); i >= 0 {
			at = i
		}
	}
	q.target.nodes = slices.DeleteFunc(slices.Clone(t.nodes), func(n string) bool { return n == agents[at].Node })
	for left := readings; ; left-- {
		if len(q.target.nodes) > 0 {
			if err := q.readStates(ctx, io.Err); err != nil {
				return 2, err
			}
		}
		r, err := q.together(ctx, agents, agents[at])
		if err != nil {
			return 2, err
		}
		if r.code != disagree || left == 1 || len(q.target.nodes) == 0 {
			return r.verdict(io)
		}
	}
}

// readings bounds the readings of all states. They are of different moments: a contradiction may be a change between them.
const readings = 3

// newTracing returns the question with the Services that it may be about, and without --services.
func newTracing(ctx context.Context, t target, command []string, in io.Reader) (*tracing, error) {
	others := &together.Others{}
	q := &tracing{t, command, others}
	flags := pflag.NewFlagSet(command[0], pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	to, given := flags.String("to", "", ""), flags.String("services", "", "")
	if err := flags.Parse(command[1:]); err != nil {
		return nil, err
	}
	if *given != "" {
		if *given != "-" {
			return nil, errors.New("--services: use standard input (-): the command reads files in the agent's pod")
		}
		var err error
		if others.Services, err = servicelist.Read("-", in); err != nil {
			return nil, err
		}
		q.command = without(command, "--services")
		return q, nil
	}
	if name, found := servicelist.Named(*to); found {
		namespace, service, _ := strings.Cut(name, "/")
		if namespace == "" || service == "" || strings.ContainsAny(service, "/,") {
			return nil, fmt.Errorf("--to %q: want service:namespace/name", *to)
		}
		var s corev1.Service
		k := t.client
		k.namespace = namespace
		// One word, so that no name is taken for a flag of kubectl.
		if err := k.get(ctx, &s, "service/"+service); err != nil {
			return nil, fmt.Errorf("--to: %w", err)
		}
		others.Services = append(others.Services, &s)
	}
	if a, err := netip.ParseAddr(strings.TrimPrefix(*to, "ip:")); err == nil {
		if others.Services, err = t.servicesAt(ctx, a.Unmap()); err != nil {
			return nil, fmt.Errorf("--to: %w", err)
		}
	}
	return q, nil
}

// servicesAt returns the Services with a cluster IP. The API finds them by their first one; an address of IPv6 may be the second.
func (k client) servicesAt(ctx context.Context, a netip.Addr) (found []*corev1.Service, err error) {
	for _, selector := range []string{"spec.clusterIP=" + a.String(), ""} {
		var all corev1.ServiceList
		if err := k.get(ctx, &all, "services", "--all-namespaces", "--field-selector", selector); err != nil {
			return nil, err
		}
		for i, s := range all.Items {
			if slices.Contains(append(s.Spec.ClusterIPs, s.Spec.ClusterIP), a.String()) {
				found = append(found, &all.Items[i])
			}
		}
		if len(found) > 0 || a.Is4() {
			break
		}
	}
	return found, nil
}

// without leaves out a flag and its value.
func without(command []string, flag string) (rest []string) {
	for i := 0; i < len(command); i++ {
		short := len(flag) == len("-f") && strings.HasPrefix(command[i], flag) // -fVALUE
		switch {
		case command[i] == flag:
			i++
		case !short && !strings.HasPrefix(command[i], flag+"="):
			rest = append(rest, command[i])
		}
	}
	return rest
}

// where asks one agent which nodes the packet may meet.
func (q *tracing) where(ctx context.Context) ([]string, error) {
	agents, err := q.target.agents(ctx)
	if err != nil {
		return nil, err
	}
	at := usable(agents)
	if fault := agents[at].Fault; fault != "" {
		return nil, fmt.Errorf("node %s: %s", agents[at].Node, fault)
	}
	text, err := q.others.Bytes()
	if err != nil {
		return nil, err
	}
	r := q.target.askOne(ctx, agents[at], text, append(slices.Clone(q.command), "--"+together.Where, "--"+together.With))
	var nodes []string
	if r.decode(&nodes); r.Fault != "" {
		return nil, r.failure()
	}
	return nodes, nil
}

// readStates has the nodes write what trace reads of them.
func (q *tracing) readStates(ctx context.Context, progress io.Writer) error {
	text, err := q.others.Bytes()
	if err != nil {
		return err
	}
	replies, err := q.target.askWith(ctx, progress, text, append(slices.Clone(q.command), "--"+together.State, "--"+together.With)...)
	if err != nil {
		return err
	}
	q.others.States = map[string][]byte{}
	for _, r := range replies {
		if r.Fault != "" {
			q.others.Silence(r.Node, r.Fault)
		} else {
			q.others.States[r.Node] = r.out
		}
	}
	return nil
}

// together has a node answer, with what others have said. If its agent cannot answer, the next one does that has said something.
func (q *tracing) together(ctx context.Context, agents []agent, first agent) (*reply, error) {
	for {
		if first.Fault != "" {
			return nil, fmt.Errorf("node %s: %s", first.Node, first.Fault)
		}
		text, err := q.others.Bytes()
		if err != nil {
			return nil, err
		}
		r := q.target.askOne(ctx, first, text, append(slices.Clone(q.command), "--"+together.With))
		if !r.cut && !r.older(together.With) {
			return &r, nil
		}
		next := slices.IndexFunc(agents, func(a agent) bool { return q.others.States[a.Node] != nil })
		if next < 0 {
			return nil, r.failure()
		}
		q.others.Silence(first.Node, r.Fault)
		first = agents[next]
		delete(q.others.States, first.Node)
	}
}

// verdict prints the answer and returns its exit code. kubectl ends with 1 if it fails itself, which must not look like a packet that is denied.
func (r *reply) verdict(io Streams) (int, error) {
	if len(r.out) == 0 || r.Fault != "" && r.code != disagree {
		return 2, r.failure()
	}
	_, err := fmt.Fprint(io.Out, printable.Lines(string(r.out))) // a compromised node writes what it likes
	return r.code, err
}

// disagree is the exit code of a trace whose ways of looking contradict each other.
const disagree = 3

// older reports whether the agent's felixctl does not know a flag.
func (r *reply) older(flag string) bool { return strings.Contains(r.Fault, "unknown flag: --"+flag) }

// failure says why there is no answer.
func (r *reply) failure() error {
	switch text, said := strings.CutPrefix(r.Fault, "exit code 2: felixctl: "); {
	case r.older(together.Where), r.older(together.With):
		return fmt.Errorf("node %s: its agent is of a release that does not trace together with others: name one node (--node %s), or update it", r.Node, r.Node)
	case said:
		return errors.New(printable.Lines(text))
	case r.Fault == "":
		return fmt.Errorf("node %s: the answer is empty", r.Node)
	}
	return fmt.Errorf("node %s: %s", r.Node, printable.Lines(r.Fault))
}
