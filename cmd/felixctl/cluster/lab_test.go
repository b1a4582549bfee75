package cluster

import (
	"strings"
	"testing"

	"github.com/felixlike/felixlike/cmd/felixctl/agentflag"
)

// TestLabOf: a lab with several nodes is asked as a whole if it is named without a node, by commands that answer for all nodes.
func TestLabOf(t *testing.T) {
	nodes := func(lab string) ([]string, error) {
		return map[string][]string{"one": {"n1"}, "two": {"n1", "n2"}}[lab], nil
	}
	for line, want := range map[string]string{
		"status --lab two":              "two: status",
		"status --lab=two -o json":      "two: status -o json",
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
