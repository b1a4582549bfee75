package ctl

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/cmd/felixctl/dump/live"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/report"
	"github.com/felixlike/felixlike/felixlike/version"
	"github.com/felixlike/felixlike/internal/files"
	"github.com/felixlike/felixlike/internal/terminal"
	"github.com/felixlike/felixlike/ovsfwd/vswitchd"
)

// stdout is the name of the standard output as the archive.
const stdout = "-"

// maxLog bounds the part taken from the end of a log.
const maxLog = 4 << 20

func diagsCommand() *cobra.Command {
	var t target
	var file string
	var logs []string
	c := &cobra.Command{
		Use:   "diags",
		Short: "Collect diagnostics of this node in one archive",
		Long: `Collect diagnostics of this node in one archive: configuration,
status, objects, model, counters and connections of the agent, the state of kernel
and switch as their own tools print it, versions, and logs.

Parts that cannot be read are left out and named in the archive (errors.txt), so the
command also works without an agent. There is no Secret in it, and nothing of a
pod but its name, labels, addresses and ports; but names and addresses of the cluster are.

The log of an agent in a pod is not within its reach: add it with
  kubectl -n felixlike-system logs POD -c agent > agent.log; felixctl diags --log agent.log

Exit codes: 0 written; 2 not.`,
		Example: "  felixctl diags --file node1.tar.gz --log /var/log/felixlike.log",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(c.Context(), t.timeout)
			defer cancel()
			stop := terminal.Progress(c.ErrOrStderr(), terminal.Doing("collecting"))
			d := newDiags()
			d.configuration(c)
			d.agent(ctx, control.NewClient(t.Socket()))
			d.logs(logs)
			d.versions(ctx)
			stop()
			if err := d.save(file, c.OutOrStdout()); err != nil {
				return err
			}
			for _, e := range d.errors {
				fmt.Fprintln(c.ErrOrStderr(), "left out:", e)
			}
			if file == stdout {
				return nil
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s: %d files\n", file, len(d.files))
			return err
		},
	}
	config.AddSetFlag(c.Flags())
	t.flags(c, time.Minute)
	c.Flags().StringVar(&file, "file", "felixlike-diags.tar.gz", "archive to write; it must not exist; - is standard output")
	c.Flags().StringArrayVar(&logs, "log", nil, "log file to add; may be repeated")
	return c
}

// diags is an archive that is being put together.
type diags struct {
	files []entry
	// errors are the parts that could not be collected.
	errors []string
}

type entry struct {
	name string
	data []byte
}

func newDiags() *diags { return &diags{} }

func (d *diags) add(name string, data []byte) { d.files = append(d.files, entry{name, data}) }

func (d *diags) failed(what string, err error) {
	d.errors = append(d.errors, fmt.Sprintf("%s: %v", what, err))
}

func (d *diags) configuration(c *cobra.Command) {
	cfg, err := config.Load(c.Flags(), os.Environ())
	if err == nil {
		var out bytes.Buffer
		if err = report.Config(&out, cfg.Rows(), nil, terminal.Text); err == nil {
			d.add("config.txt", out.Bytes())
		}
	}
	if err != nil {
		d.failed("configuration", err)
	}
}

// agent collects the agent's answers, and the state of its node.
func (d *diags) agent(ctx context.Context, agent *control.Client) {
	asked := func(name string, value any, err error) {
		var data []byte
		if err == nil {
			data, err = json.MarshalIndent(value, "", " ")
		}
		if err != nil {
			d.failed(name, err)
			return
		}
		d.add(name, data)
	}
	node, options := live.Node{}, live.Options{Everything: true}
	status, err := agent.Status(ctx)
	asked("status.json", status, err)
	if !control.NotRunning(err) {
		objects, err := agent.Objects(ctx)
		asked("objects.json", objects, err)
		hits, err := agent.Hits(ctx)
		asked("hits.json", hits, err)
		connections, err := agent.Connections(ctx)
		asked("connections.json", connections, err)
		m, err := agent.Model(ctx)
		asked("model.json", m, err)
		options.Backend, node.OVSRunDir, node.Bridge = status.Backend, m.Settings.OVSRunDir, m.Settings.Bridge
		if pid, err := agent.PID(ctx); err == nil {
			node.NetNS = fmt.Sprintf("/proc/%d/ns/net", pid)
		}
	}
	parts, err := live.Read(ctx, node, options)
	if err != nil {
		d.failed("state of the node", err)
	}
	for i, p := range parts {
		d.add(fmt.Sprintf("dumps/%02d-%s.txt", i+1, fileName(p.Command)), []byte(p.Text))
	}
	if status.Underlay != nil && node.OVSRunDir != "" {
		d.statistics(ctx, vswitchd.New(node.OVSRunDir, status.Underlay.Datapath))
	}
	if logs, err := filepath.Glob(filepath.Join(node.OVSRunDir, "*.log")); err == nil && node.OVSRunDir != "" {
		d.logs(logs)
	}
}

// statistics collects the counters of ovs-vswitchd: upcalls, cached flows, revalidators, events and memory (ovs-vswitchd(8)).
func (d *diags) statistics(ctx context.Context, daemon *vswitchd.Client) {
	for _, method := range []string{"upcall/show", "dpif/show", "coverage/show", "memory/show"} {
		text, err := daemon.Call(ctx, method)
		if err != nil {
			d.failed("ovs-appctl "+method, err)
			continue
		}
		d.add("switch/"+fileName(method)+".txt", []byte(text))
	}
}

// fileName makes a command a file's name.
func fileName(command string) string {
	return strings.Map(func(r rune) rune {
		if r == ' ' || r == '/' || r == ':' {
			return '_'
		}
		return r
	}, command)
}

// logs adds the ends of log files.
func (d *diags) logs(paths []string) {
	for _, path := range paths {
		data, err := tail(path)
		if err != nil {
			d.failed("log", err)
			continue
		}
		d.add("logs/"+fileName(strings.TrimPrefix(path, "/")), data)
	}
}

func tail(path string) ([]byte, error) {
	f, err := files.Open(path, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxLog {
		if _, err := f.Seek(-maxLog, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(f, maxLog))
}

// versions collects the versions of the kernel and the tools, and the kernel's counters of packets that a processor dropped.
func (d *diags) versions(ctx context.Context) {
	var out strings.Builder
	fmt.Fprintf(&out, "felixctl: %s\n", version.String())
	for _, argv := range [][]string{
		{"uname", "-a"}, {"nft", "--version"}, {"iptables", "--version"}, {"ipset", "--version"}, {"ovs-vswitchd", "--version"}, {"ovs-ofctl", "--version"},
	} {
		text, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
		if err != nil {
			text = []byte(err.Error())
		}
		first, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
		fmt.Fprintf(&out, "%s: %s\n", argv[0], first)
	}
	d.add("versions.txt", []byte(out.String()))
	for _, path := range []string{"/proc/modules", "/proc/net/softnet_stat", "/etc/os-release"} {
		if data, err := os.ReadFile(path); err == nil {
			d.add("node/"+filepath.Base(path), data)
		} else {
			d.failed("node", err)
		}
	}
}

// save writes the archive to a new file that its owner alone can read, or to out.
func (d *diags) save(path string, out io.Writer) error {
	if path == stdout {
		return d.write(out, "felixlike-diags", time.Now())
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	err = d.write(f, strings.TrimSuffix(filepath.Base(path), ".tar.gz"), time.Now())
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// write writes the archive; all files are in the folder root.
func (d *diags) write(out io.Writer, root string, at time.Time) (err error) {
	if len(d.errors) > 0 {
		d.add("errors.txt", []byte(strings.Join(d.errors, "\n")+"\n"))
	}
	z := gzip.NewWriter(out)
	w := tar.NewWriter(z)
	for _, e := range d.files {
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: root + "/" + e.name, Mode: 0o600, Size: int64(len(e.data)), ModTime: at})
		}
		if err == nil {
			_, err = w.Write(e.data)
		}
	}
	return errors.Join(err, w.Close(), z.Close())
}
