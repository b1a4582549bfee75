package deploy

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestPolicyTestAction: the action runs felixctl of the release that it is told, with the files that it is told, ends with its exit code, and
// runs nothing that is not what the release names.
func TestPolicyTestAction(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("the action downloads with curl, which is not installed here")
	}
	releases := t.TempDir()
	name := fmt.Sprintf("felixctl-v1.2.3-%s-%s.tar.gz", runtime.GOOS, runtime.GOARCH)
	var archive bytes.Buffer
	z := gzip.NewWriter(&archive)
	w := tar.NewWriter(z)
	program := "#!/bin/sh\nprintf '<%s>' \"$@\"\nexit 1\n"
	if err := w.WriteHeader(&tar.Header{Name: "./felixctl", Mode: 0o755, Size: int64(len(program))}); err != nil {
		t.Fatal(err)
	}
	_, err := w.Write([]byte(program))
	if err := errors.Join(err, w.Close(), z.Close(), os.Mkdir(filepath.Join(releases, "v1.2.3"), 0o755)); err != nil {
		t.Fatal(err)
	}
	publish := func(file, text string) {
		if err := os.WriteFile(filepath.Join(releases, "v1.2.3", file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	publish(name, archive.String())
	publish("SHA256SUMS", strings.TrimPrefix(digestOf(archive.String()), "sha256:")+"  "+name+"\n")
	run := func(env ...string) (string, int) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "../.github/actions/policy-test/run")
		c.Env = append(append(os.Environ(), "VERSION=v1.2.3", "RELEASES=file://"+releases), env...)
		out, err := c.CombinedOutput()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return string(out), c.ProcessState.ExitCode()
	}
	if out, code := run("FILES=policies/\n\na b.yaml\n", "JUNIT=report.xml"); code != 1 || out != "<test><-f><policies/><-f><a b.yaml><--junit><report.xml>" {
		t.Errorf("exit code %d: %s", code, out)
	}
	if out, code := run("FILES=x", "VERSION=main"); code != 2 || !strings.Contains(out, `version "main" is no release`) {
		t.Errorf("a branch: exit code %d: %s", code, out)
	}
	if out, code := run("FILES=x", "VERSION=v9.9.9"); code != 2 || !strings.Contains(out, "cannot download") {
		t.Errorf("no such release: exit code %d: %s", code, out)
	}
	publish(name, archive.String()+"more")
	if out, code := run("FILES=x"); code != 2 || !strings.Contains(out, "is not the file that SHA256SUMS names") {
		t.Errorf("another file: exit code %d: %s", code, out)
	}
	publish("SHA256SUMS", "")
	if out, code := run("FILES=x"); code != 2 || !strings.Contains(out, "is not the file that SHA256SUMS names") {
		t.Errorf("a file without a hash: exit code %d: %s", code, out)
	}
}
