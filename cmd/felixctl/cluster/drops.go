package cluster

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/internal/terminal"
)

// longestLine bounds a line of felixctl drops.
const longestLine = 1 << 20

// dropsCommand merges the lines of all nodes.
func (t target) dropsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "drops [FLAGS OF DROPS]",
		Short: "Show the denied packets of all nodes",
		Long: `Run felixctl drops on all nodes and print their lines as they come. Each line begins with the
node; with -o json or yaml each object has the field "node". It takes the flags of felixctl drops.

Exit codes: 0 nothing was denied, or --follow was interrupted; 1 something was denied, or with
--staged would have been; 2 a node gave no answer.`,
		Example: `  kubectl felixlike drops --follow
  kubectl felixlike drops --staged
  kubectl felixlike drops --for 1m --namespace shop -o json`,
		DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			if slices.Contains(args, "-h") || slices.Contains(args, "--help") {
				return c.Help()
			}
			ctx := c.Context()
			agents, err := t.agents(ctx)
			if err != nil {
				return err
			}
			args, format := objectsOf(args)
			return t.follow(ctx, agents, append([]string{"drops"}, args...), &merged{out: c.OutOrStdout(), err: c.ErrOrStderr(), format: format, width: widest(agents), endless: endless(args)})
		},
	}
}

// objectsOf returns JSON or YAML if the arguments ask for it, otherwise text. The nodes are asked for
// JSON in both cases: it has an object a line.
func objectsOf(args []string) ([]string, terminal.Output) {
	args, asked := slices.Clone(args), terminal.Text
	for i, a := range args {
		for _, format := range []terminal.Output{terminal.JSON, terminal.YAML} {
			text := string(format)
			if a == "-o"+text || a == "-o="+text || a == "--output="+text || a == text && i > 0 && (args[i-1] == "-o" || args[i-1] == "--output") {
				args[i], asked = strings.TrimSuffix(a, text)+string(terminal.JSON), format
			}
		}
	}
	return args, asked
}

// endless reports whether drops follows until it is interrupted.
func endless(args []string) bool {
	bounded := func(a string) bool { return a == "--for" || strings.HasPrefix(a, "--for=") }
	return slices.ContainsFunc(args, func(a string) bool { return a == "--follow" || a == "--follow=true" }) && !slices.ContainsFunc(args, bounded)
}

func widest(agents []agent) int {
	width := 0
	for _, a := range agents {
		width = max(width, len(a.Node))
	}
	return width
}

// follow runs a command on all nodes until it has ended on each, and merges the lines.
func (t target) follow(ctx context.Context, agents []agent, command []string, to *merged) error {
	var wait sync.WaitGroup
	codes := make([]int, len(agents))
	for i, a := range agents {
		if a.Fault != "" {
			to.fault(a.Node, a.Fault)
			codes[i] = 2
			continue
		}
		wait.Go(func() { codes[i] = t.followOne(ctx, a, command, to) })
	}
	wait.Wait()
	missing := 0
	for _, code := range codes {
		if code > 1 {
			missing++
		}
	}
	switch {
	case to.failed != nil:
		return to.failed
	case missing > 0:
		return errNoAnswer(missing, len(agents))
	case slices.Contains(codes, 1):
		return report.ErrFaults
	}
	return nil
}

// followOne passes on the lines of a node's command, and returns its exit code. An
// interrupted command has the code 0.
func (t target) followOne(ctx context.Context, a agent, command []string, to *merged) int {
	cmd := t.exec(ctx, a, command)
	// felixctl in the pod ends once nobody takes its output.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		to.fault(a.Node, err.Error())
		return 2
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		to.line(a.Node, lines.Text())
	}
	readError := lines.Err()
	if readError != nil {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
	}
	code, text, err := t.codeOf(cmd.Wait(), errs.Bytes())
	switch {
	case ctx.Err() != nil:
		return 0
	case readError != nil:
		to.fault(a.Node, readError.Error())
		return 2
	case err != nil:
		to.fault(a.Node, err.Error())
		return 2
	case to.endless && code < 2:
		to.fault(a.Node, "the connection has ended "+text)
		return 2
	case text != "":
		to.fault(a.Node, text)
	}
	return code
}

// merged writes the lines of several nodes.
type merged struct {
	mu       sync.Mutex
	out, err io.Writer
	format   terminal.Output
	width    int
	// endless says that a command must not end by itself.
	endless bool
	// failed is the error of the last write.
	failed error
}

// line writes a node's line.
func (m *merged) line(node, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var err error
	var object map[string]json.RawMessage
	switch {
	case m.format == terminal.Text:
		_, err = fmt.Fprintf(m.out, "%-*s  %s\n", m.width, node, text)
	case json.Unmarshal([]byte(text), &object) == nil && object != nil:
		object["node"], _ = json.Marshal(node) //nolint:errchkjson // a string
		err = m.format.PrintLine(m.out, object, nil)
	default:
		_, err = fmt.Fprintln(m.out, text)
	}
	m.failed = errors.Join(m.failed, err)
}

func (m *merged) fault(node, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	fmt.Fprintf(m.err, "%s: %s\n", node, text)
}
