package cluster

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/agentflag"
	"github.com/felixlike/felixlike/cmd/felixctl/labs"
)

// TestLabOf: a lab with several nodes is asked as a whole if it is named without a node, by commands that answer for all nodes.
func TestLabOf(t *testing.T) {
	nodes := func(lab string) ([]string, error) {
		return map[string][]string{"one": {"n1"}, "two": {"n1", "n2"}}[lab], nil
	}
	for line, want := range map[string]string{
		"status --lab two":              "two: status",
		"status --lab=two -o json":      "two: status -o json",
		"diff --lab two -- live wanted": "two: diff -- live wanted",
		"drops --since 5m --lab two":    "two: drops --since 5m",
		"diff live wanted --lab two":    "two: diff live wanted",
		"policies":                      "two: policies", // the environment
		"policies --lab one":            "",
		"policies --lab none":           "",
		"policies --lab two/n2":         "",
		"policies --lab":                "",
		"policies --socket /x":          "",
		"status --lab two --help":       "",
		"trace --lab two --from x/a":    "",
		"":                              "",
		"dump --lab two":                "",
		"services shop/web --lab two":   "two: services shop/web",
		"diff - live --lab two":         "", // standard input is for one
		"status --lab two --lab-root /": "",
	} {
		lab, command := labOf(strings.Fields(line), func(name string) string { return map[string]string{agentflag.LabVariable: "two"}[name] }, nodes)
		got := ""
		if lab != "" {
			got = lab + ": " + strings.Join(command, " ")
		}
		if got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	both := map[string]string{agentflag.LabVariable: "two", agentflag.SocketVariable: "/x"}
	if lab, _ := labOf([]string{"status"}, func(name string) string { return both[name] }, nodes); lab != "" {
		t.Errorf("with both variables set, lab %s", lab)
	}
}

// TestLabAgents: a node is found by its name although its folder has a shorter one, and an unknown one is an error. --lab goes before a "--".
func TestLabAgents(t *testing.T) {
	t.Setenv(labs.RootVariable, t.TempDir())
	const long = "a-node-with-a-name-that-is-longer-than-a-folder"
	if err := os.MkdirAll(labs.NodeDir(labs.Root()+"/two", long), 0o700); err != nil {
		t.Fatal(err)
	}
	l := target{lab: "two", nodes: []string{long}}
	all, err := l.agents(t.Context())
	if err != nil || len(all) != 1 || all[0].Node != labs.NodeFolder(long) {
		t.Errorf("%v, %v", all, err)
	}
	l.nodes = []string{"nosuch"}
	if code, err := l.passOn(t.Context(), []string{"policies"}, Streams{}); code != 2 || err == nil || !strings.Contains(err.Error(), "lab two has no node nosuch") {
		t.Errorf("exit code %d, %v", code, err)
	}
	cmd := l.exec(t.Context(), agent{Node: "n1"}, []string{"diff", "--", "live", "wanted"})
	if want := []string{"diff", "--lab", "two/n1", "--", "live", "wanted"}; !slices.Equal(cmd.Args[1:], want) {
		t.Errorf("%q, want %q", cmd.Args[1:], want)
	}
}
