package ctl

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/internal/terminal"
)

func end(pod, address string) control.DropEnd {
	return control.DropEnd{Address: netip.MustParseAddr(address), Pod: pod}
}

// someDrops are of all kinds.
func someDrops() []control.Drop {
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.Local)
	isolated := control.Drop{
		At: at, Direction: "ingress", From: end("shop/web", "10.0.0.7"), To: end("shop/db", "10.0.0.8"), Protocol: "tcp", SourcePort: 40000, Port: 5432,
		By: control.ByIsolation, Policies: []string{"shop/deny-all", "shop/db"},
	}
	again := isolated
	again.SourcePort, again.At = 40001, at.Add(time.Second)
	return []control.Drop{
		isolated,
		{At: at, Direction: "egress", From: end("ops/a-pod-with-quite-a-long-name", "10.0.0.9"), To: end("", "192.0.2.1"), Protocol: "udp", Port: 53, By: control.ByRule, Policy: "clusternetworkpolicy/no-dns", Rule: "egress[0]"},
		again,
		{At: at, NotShown: 5},
		{At: at, Direction: "ingress", From: end("", "192.0.2.1"), To: end("ops/x", "10.0.0.10"), Protocol: "icmp", ICMP: &control.ICMPType{Type: 8}, By: control.ByClosed, Reason: "shop/y is quarantined"},
		{At: at, Direction: "ingress", From: end("", "fd00::1"), To: end("ops/z", "fd00::2"), Protocol: "47", By: control.ByChanged},
	}
}

func TestDropsAddedUp(t *testing.T) {
	s := sums{}
	var out bytes.Buffer
	if err := s.print(&out); err != nil || out.String() != "policy has denied nothing\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	for _, d := range someDrops() {
		s.Add(d, 1, d.At)
	}
	out.Reset()
	if err := s.print(&out); err != nil {
		t.Fatal(err)
	}
	want := `FROM                             TO         PORT               DIRECTION  DENIED BY                           PACKETS
shop/web                         shop/db    tcp/5432           ingress    shop/deny-all, shop/db                    2
192.0.2.1                        ops/x      icmp echo-request  ingress    closed: shop/y is quarantined               1
fd00::1                          ops/z      47                 ingress    no policy that is in force by now         1
ops/a-pod-with-quite-a-long-name  192.0.2.1  udp/53             egress     clusternetworkpolicy/no-dns egress[0]                    1
5 more packets were denied and are not shown: there were too many
`
	// The content of the columns matters, their width does not.
	if got, want := strings.Fields(out.String()), strings.Fields(want); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got\n%s", out.String())
	}
	out.Reset()
	if err := s.printLines(&out, terminal.JSON); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 5 || !strings.Contains(lines[0], `"packets":2,"last":"2026-11-20T10:00:01`) || strings.Contains(lines[0], "sourcePort") || !strings.HasSuffix(lines[4], `"notShown":5}`) {
		t.Errorf("%d lines:\n%s", len(lines), out.String())
	}
}

func TestDropsAsTheyCome(t *testing.T) {
	var out bytes.Buffer
	l := newDropLines(&out)
	for _, d := range someDrops() {
		if err := printDrop(l, d); err != nil {
			t.Fatal(err)
		}
	}
	want := `TIME          FROM                    TO                      PORT                 DIRECTION  DENIED BY
10:00:00.000  shop/web                shop/db                 tcp/5432             ingress    shop/deny-all, shop/db
10:00:00.000  ops/a-pod-with-quite-a-long-name  192.0.2.1               udp/53               egress     clusternetworkpolicy/no-dns egress[0]
10:00:01.000  shop/web                          shop/db                 tcp/5432             ingress    shop/deny-all, shop/db
5 more not shown
10:00:00.000  192.0.2.1                         ops/x                   icmp echo-request    ingress    closed: shop/y is quarantined
10:00:00.000  fd00::1                           ops/z                   47                   ingress    no policy that is in force by now
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestDropsFilter(t *testing.T) {
	for name, c := range map[string]struct {
		filter report.DropFilter
		want   int
	}{
		"all": {report.DropFilter{}, 6}, "a pod": {report.DropFilter{Pod: "shop/db"}, 3}, "a namespace": {report.DropFilter{Namespace: "ops"}, 4},
		"a direction": {report.DropFilter{Direction: "egress"}, 2}, "all of it": {report.DropFilter{Pod: "ops/x", Namespace: "ops", Direction: "ingress"}, 2},
		"a namespace that begins alike": {report.DropFilter{Namespace: "op"}, 1},
	} {
		got := 0
		for _, d := range someDrops() {
			if c.filter.Shows(d) {
				got++
			}
		}
		if err := c.filter.Check(); got != c.want || err != nil {
			t.Errorf("%s: %d are shown, want %d with the count of those that are not; %v", name, got, c.want, err)
		}
	}
	for _, bad := range []report.DropFilter{{Pod: "x"}, {Direction: "both"}} {
		if bad.Check() == nil {
			t.Errorf("%+v is taken", bad)
		}
	}
}

// lateReporter is an agent that takes a while until it reports packets.
type lateReporter struct {
	control.Agent
	takes time.Duration
}

func (lateReporter) Status() control.Status { return control.Status{} }

func (l lateReporter) Drops(ctx context.Context, _ time.Duration, got func(*control.Drop) error) error {
	time.Sleep(l.takes)
	for _, d := range []*control.Drop{nil, &someDrops()[0]} {
		if err := got(d); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// TestTimeToListenBeginsWithTheAgent: what is denied behind the agent's begin is shown, however
// late that is.
func TestTimeToListenBeginsWithTheAgent(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	const listen = 200 * time.Millisecond
	go func() {
		done <- control.Serve(ctx, socket, lateReporter{takes: 3 * listen}, slog.New(slog.DiscardHandler))
	}()
	serves(t, socket)
	for _, more := range [][]string{nil, {"--follow"}} {
		c := dropsCommand()
		c.SilenceUsage, c.SilenceErrors = true, true
		var out bytes.Buffer
		c.SetOut(&out)
		c.SetErr(io.Discard)
		c.SetArgs(append([]string{"--socket", socket, "--for", listen.String()}, more...))
		err := c.ExecuteContext(t.Context())
		if !strings.Contains(out.String(), "shop/deny-all") || more == nil && !errors.Is(err, ErrDenied) || more != nil && err != nil {
			t.Errorf("%v: %v:\n%s", more, err, out.String())
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// PolicyLog logs the same packet twice.
func (lateReporter) PolicyLog(ctx context.Context, _ time.Duration, got func(*control.Logged) error) error {
	d := someDrops()[0]
	logged := control.Logged{At: d.At, Verdict: "deny", Direction: d.Direction, From: d.From, To: d.To, Protocol: d.Protocol, Port: d.Port, Tier: "networkpolicy", Rule: "ingress[0]"}
	for _, l := range []*control.Logged{nil, &logged, &logged} {
		if err := got(l); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return nil
}

// until is an output that ends the command when it has a text so often.
type until struct {
	bytes.Buffer
	text string
	n    int
	end  func()
}

func (u *until) Write(b []byte) (int, error) {
	n, err := u.Buffer.Write(b)
	if bytes.Count(u.Bytes(), []byte(u.text)) >= u.n {
		u.end()
	}
	return n, err
}

// TestStreamsForPrograms: drops and policy-log print a document of YAML for each object, and no headings with --no-headers.
func TestStreamsForPrograms(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- control.Serve(ctx, socket, lateReporter{}, slog.New(slog.DiscardHandler)) }()
	serves(t, socket)
	for _, c := range []struct {
		command func() *cobra.Command
		args    string
		// objects are printed, after which a command that follows is interrupted.
		objects int
	}{{dropsCommand, "--for 200ms", 1}, {dropsCommand, "--follow", 1}, {policyLogCommand, "", 2}} {
		for _, format := range []string{"-o yaml", "", "--no-headers"} {
			command := c.command()
			command.SilenceUsage, command.SilenceErrors = true, true
			ctx, end := context.WithCancel(t.Context())
			out := &until{text: "5432", n: c.objects, end: end}
			command.SetOut(out)
			command.SetErr(io.Discard)
			command.SetArgs(append([]string{"--socket", socket}, strings.Fields(c.args+" "+format)...))
			err := command.ExecuteContext(ctx)
			end()
			headings, documents := strings.Count(out.String(), "DIRECTION"), strings.Split(out.String(), "---\n")
			want := 0
			switch format {
			case "":
				want = 1
			case "-o yaml":
				for _, text := range documents[1:] {
					var d control.Drop // the fields of control.Logged have the same names
					if err := yaml.Unmarshal([]byte(text), &d); err != nil || d.To.Pod != "shop/db" || d.Port != 5432 {
						t.Errorf("%s %s: %v, document\n%s", command.Name(), c.args, err, text)
					}
				}
				if len(documents) != c.objects+1 || documents[0] != "" {
					t.Errorf("%s %s: not %d documents:\n%s", command.Name(), c.args, c.objects, out)
				}
			}
			if err != nil && !errors.Is(err, ErrDenied) || headings != want || !strings.Contains(out.String(), "shop/db") {
				t.Errorf("%s %s %s: %v, %d headings:\n%s", command.Name(), c.args, format, err, headings, out)
			}
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
