package ctl

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlugin runs the plugin with a kubectl that records its arguments.
func TestPlugin(t *testing.T) {
	dir := t.TempDir()
	script := `#!/bin/sh
echo "$@" >> ` + filepath.Join(dir, "asked") + `
case "$*" in
*spec.nodeName=n1,*) echo pod/felixlike-abc;;
*" exec "*) cat; exit 1;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	run := func(args ...string) (int, string, error) {
		var out bytes.Buffer
		code, err := RunPlugin(t.Context(), args, strings.NewReader("a policy"), &out, &out)
		return code, out.String(), err
	}
	if code, out, err := run("--context", "c1", "--node=n1", "preview", "-f", "-"); code != 1 || err != nil || out != "a policy" {
		t.Errorf("exit code %d, %q, %v", code, out, err)
	}
	asked, err := os.ReadFile(filepath.Join(dir, "asked"))
	want := "--context c1 --namespace felixlike-system get pods -l app.kubernetes.io/name=felixlike,app.kubernetes.io/component=agent " +
		"--field-selector spec.nodeName=n1,status.phase=Running -o name\n" +
		"--context c1 --namespace felixlike-system exec --stdin pod/felixlike-abc --container agent -- felixctl preview -f -\n"
	if err != nil || string(asked) != want {
		t.Errorf("kubectl was asked\n%s, want\n%s", asked, want)
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"no agent runs on node n2", []string{"--node", "n2", "status"}},
		{"--node NODE is missing", []string{"status"}},
		{"unknown flag --nodes", []string{"--nodes", "n1", "status"}},
		{"a value is missing", []string{"--node"}},
	} {
		if code, _, err := run(c.args...); code != 2 || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: exit code %d, %v; want %q", c.args, code, err, c.want)
		}
	}
	if code, out, err := run("--help"); code != 0 || err != nil || !strings.Contains(out, "kubectl felixlike --node") {
		t.Errorf("help: %d, %q, %v", code, out, err)
	}
	if !IsPlugin("/usr/local/bin/kubectl-felixlike") || IsPlugin("/usr/local/bin/felixctl") {
		t.Error("it does not know its name")
	}
}
