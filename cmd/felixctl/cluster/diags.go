package cluster

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/felixlike/felixlike/internal/files"
)

// Bounds of an archive.
const (
	// logLines is the number of lines of each container's log.
	logLines = "20000"
	// maxDiags bounds the unpacked diagnostics of one node, in bytes.
	maxDiags = 256 << 20
)

// diagsCommand collects the diagnostics of all nodes in one archive.
func (t target) diagsCommand() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "diags",
		Short: "Collect the diagnostics and logs of all nodes in one archive",
		Long: `Collect the diagnostics of all nodes (felixctl diags) and the logs of the pods of agent and Open
vSwitch in one archive, with a folder for each node. Parts that could not be collected are named in
errors.txt. There is no Secret in it; names and addresses of the cluster are.

Exit codes: 0 written; 2 not, or without a node.`,
		Example: "  kubectl felixlike diags --file cluster.tar.gz",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return fmt.Errorf("write the archive: %w", err)
			}
			replies, err := t.ask(c.Context(), c.ErrOrStderr(), "diags", "--file", "-")
			if err != nil {
				return errors.Join(err, f.Close(), os.Remove(file))
			}
			switches, err := t.switches(c.Context())
			a := newArchive(f, strings.TrimSuffix(path.Base(file), ".tar.gz"))
			if err != nil {
				a.failed("logs of Open vSwitch", err)
			}
			missing := 0
			for _, r := range replies {
				var err error
				if r.Fault != "" {
					err = errors.New(r.Fault)
				} else {
					err = a.node(r)
				}
				if err != nil {
					missing++
					a.failed(r.Node, err)
				}
				t.logs(c.Context(), a, r.Node+"/logs", r.Pod, container)
				t.logs(c.Context(), a, r.Node+"/ovs-logs", switches[r.Node].Name, switchContainer)
			}
			t.objects(c.Context(), a)
			if err := errors.Join(a.close(), f.Close()); err != nil {
				return fmt.Errorf("write %s: %w", file, err)
			}
			for _, e := range a.errors {
				fmt.Fprintln(c.ErrOrStderr(), "left out:", e)
			}
			if _, err := fmt.Fprintf(c.OutOrStdout(), "%s: %d files of %d nodes\n", file, a.count, len(replies)-missing); err != nil {
				return err
			}
			return errNoAnswer(missing, len(replies))
		},
	}
	c.Flags().StringVar(&file, "file", "felixlike-cluster.tar.gz", "archive to write; it must not exist")
	return c
}

// logs adds the logs of a pod, and those of a container's former run. There may be no such pod.
func (k client) logs(ctx context.Context, a *archive, file, pod, container string) {
	if pod == "" {
		return
	}
	for _, c := range []struct {
		name string
		args []string
	}{
		{file + ".txt", []string{"--all-containers"}},
		{file + "-previous.txt", []string{"--container", container, "--previous"}},
	} {
		ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
		out, err := k.output(ctx, append([]string{"logs", pod, "--prefix", "--timestamps", "--tail", logLines}, c.args...)...)
		cancel()
		switch {
		case err == nil:
			a.add(c.name, out)
		case strings.Contains(err.Error(), "previous terminated container"):
			// It has not restarted.
		default:
			a.failed(c.name, err)
		}
	}
}

// objects adds the objects of the installation, without Secrets.
func (k client) objects(ctx context.Context, a *archive) {
	for name, args := range map[string][]string{
		"pods.txt":      {"get", "pods", "-o", "wide"},
		"events.txt":    {"get", "events", "--sort-by", ".lastTimestamp"},
		"install.yaml":  {"get", "daemonset,configmap", "-o", "yaml"},
		"nodes.txt":     {"get", "nodes", "-o", "wide"},
		"policies.yaml": {"get", "networkpolicy", "--all-namespaces", "-o", "yaml"},
	} {
		ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
		out, err := k.output(ctx, args...)
		cancel()
		if err != nil {
			a.failed(name, err)
			continue
		}
		a.add(name, out)
	}
}

// archive is a compressed tar file with all files in one folder.
type archive struct {
	root   string
	zip    *gzip.Writer
	tar    *tar.Writer
	at     time.Time
	count  int
	errors []string
	// err is the first error of writing.
	err error
}

func newArchive(w io.Writer, root string) *archive {
	z := gzip.NewWriter(w)
	return &archive{root: root, zip: z, tar: tar.NewWriter(z), at: time.Now()}
}

func (a *archive) add(name string, data []byte) {
	if a.err == nil {
		a.err = a.tar.WriteHeader(&tar.Header{Name: a.root + "/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: a.at})
	}
	if a.err == nil {
		_, a.err = a.tar.Write(data)
	}
	a.count++
}

func (a *archive) failed(what string, err error) {
	a.errors = append(a.errors, fmt.Sprintf("%s: %v", what, err))
}

// node adds the files of a node's own archive.
func (a *archive) node(r reply) error {
	z, err := gzip.NewReader(bytes.NewReader(r.out))
	if err != nil {
		return err
	}
	from := tar.NewReader(files.Bounded(z, maxDiags))
	for {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		var data []byte
		if err == nil {
			data, err = io.ReadAll(from)
		}
		if err != nil {
			return err
		}
		// The first part is the name of the node's own archive. A name cannot leave the folder.
		_, name, _ := strings.Cut(path.Clean("/" + header.Name)[1:], "/")
		a.add(r.Node+"/"+name, data)
	}
}

func (a *archive) close() error {
	if len(a.errors) > 0 {
		a.add("errors.txt", []byte(strings.Join(a.errors, "\n")+"\n"))
	}
	return errors.Join(a.err, a.tar.Close(), a.zip.Close())
}
