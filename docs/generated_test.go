package docs

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	yaml "go.yaml.in/yaml/v3"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/metrics"
)

// writeTable compares the part of a page between <!-- table --> and <!-- end --> with the rows, and with -update writes it.
func writeTable(t *testing.T, page, head string, rows []string) {
	t.Helper()
	const begin, end = "<!-- table -->\n", "<!-- end -->"
	data, err := os.ReadFile(page)
	before, rest, found := strings.Cut(string(data), begin)
	_, after, ends := strings.Cut(rest, end)
	if err != nil || !found || !ends {
		t.Fatalf("%s: %v; it has a place for a table: %v", page, err, found && ends)
	}
	want := before + begin + "\n" + head + "\n" + strings.Join(rows, "\n") + "\n\n" + end + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(data) != want {
		t.Errorf("%s is out of date (go test ./docs -update)", page)
	}
}

func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + cell(text) + "`"
}

// TestSettings: reference/settings.md has the settings of the agent, with defaults and meaning.
func TestSettings(t *testing.T) {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	config.AddFlags(flags)
	effective, err := config.Load(flags, []string{"FELIXLIKE_NODE_NAME=NODE"})
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, r := range effective.Rows() {
		flag := flags.Lookup(config.FlagName(r.Key))
		help, _, _ := strings.Cut(flag.Usage, " (environment ")
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", r.Key, code(flag.DefValue), cell(help)))
	}
	writeTable(t, "reference/settings.md", "| setting | default | meaning |\n|---|---|---|", rows)
}

// TestMetrics: reference/metrics.md has the metrics of the agent.
func TestMetrics(t *testing.T) {
	state := metrics.State{Endpoints: map[string]int{"programmed": 1}, Problems: map[metrics.Problem]int{{Kind: "NetworkPolicy", Reason: "NotUnderstood"}: 1}}
	m := metrics.New([]string{"nftables"}, []string{"rule"}, func() (metrics.State, bool) { return state, true })
	m.WatchTables(func() []metrics.Table { return []metrics.Table{{Name: "conntrack"}} })
	m.CountDropped(func() (map[string]uint64, error) { return map[string]uint64{"tunnel-end": 0}, nil })
	m.CountPolicyPackets(func() (map[metrics.PolicyPackets]uint64, error) {
		return map[metrics.PolicyPackets]uint64{{Direction: "ingress", Action: "deny"}: 0}, nil
	})
	m.Applied("nftables", true, 0, 0, nil)
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	var rows, names []string
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "felixlike_") {
			names = append(names, f.GetName())
			var labels []string
			for _, l := range f.GetMetric()[0].GetLabel() {
				labels = append(labels, "`"+l.GetName()+"`")
			}
			rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(labels, ", "), cell(f.GetHelp())))
		}
	}
	for _, name := range namesInSource(t) {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not in the page", name)
		}
	}
	writeTable(t, "reference/metrics.md", "| metric | type | labels | meaning |\n|---|---|---|---|", rows)
}

// namesInSource returns the names of metrics in the source of the package metrics.
func namesInSource(t *testing.T) (all []string) {
	t.Helper()
	files, err := filepath.Glob("../felixlike/metrics/*.go")
	if err != nil || files == nil {
		t.Fatal(files, err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`"(felixlike_\w+)"`).FindAllStringSubmatch(string(source), -1) {
			all = append(all, m[1])
		}
	}
	return all
}

// TestHelmValues: reference/helm.md has the values of the chart, with the comments of values.yaml.
func TestHelmValues(t *testing.T) {
	data, err := os.ReadFile("../deploy/chart/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	writeTable(t, "reference/helm.md", "| value | default | meaning |\n|---|---|---|", values("", root.Content[0]))
}

// values returns a row for each value below a mapping, and one for a mapping with a comment.
func values(prefix string, mapping *yaml.Node) (rows []string) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		name := prefix + key.Value
		comment := cell(strings.ReplaceAll(cmp.Or(key.HeadComment, key.LineComment), "#", ""))
		if value.Kind == yaml.MappingNode && len(value.Content) > 0 && value.Style != yaml.FlowStyle {
			if comment != "" {
				rows = append(rows, fmt.Sprintf("| `%s` | | %s |", name, comment))
			}
			rows = append(rows, values(name+".", value)...)
			continue
		}
		text, err := yaml.Marshal(value)
		if err != nil {
			text = []byte(err.Error())
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |", name, code(string(text)), comment))
	}
	return rows
}

// TestEvents: reference/events.md has the reason of each Event.
func TestEvents(t *testing.T) {
	page, err := os.ReadFile("reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	reason, count := regexp.MustCompile(`\bnotice[A-Z]\w* += "([A-Z]\w+)"`), 0
	err = filepath.WalkDir("../felixlike", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range reason.FindAllStringSubmatch(string(source), -1) {
			if count++; !strings.Contains(string(page), "`"+m[1]+"`") {
				t.Errorf("%s: the page has no %s", path, m[1])
			}
		}
		return err
	})
	if err != nil || count < 10 {
		t.Errorf("%d reasons: %v", count, err)
	}
}
