package page

import (
	"encoding/json"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/felixlike/felixlike/test/bench"
	"github.com/felixlike/felixlike/test/measure"
)

// reports are those that the tests are made with: one that was measured, and one
// with everything that there can be.
func reports(t testing.TB) map[string]*bench.Report {
	t.Helper()
	all := map[string]*bench.Report{}
	for _, path := range []string{"../../../docs/results/benchmarks/w1.json", "../testdata/report.json"} {
		data, err := os.ReadFile(filepath.FromSlash(path))
		if err != nil {
			t.Fatal(err)
		}
		if all[path], err = bench.Decode(data); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func written(t testing.TB, r *bench.Report) string {
	t.Helper()
	var b strings.Builder
	if err := Write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestThePageNeedsNothingElse(t *testing.T) {
	for path, r := range reports(t) {
		text := written(t, r)
		for _, never := range []string{"<script", "<link", "<img", "<iframe", "@import", "url(", "://", " src=", "NaN", "Inf", "%!", "ZgotmplZ"} {
			if i := strings.Index(text, never); i >= 0 {
				t.Errorf("%s: %q in %q", path, never, text[max(0, i-80):min(len(text), i+80)])
			}
		}
		for _, m := range regexp.MustCompile(`href="([^"]*)"`).FindAllStringSubmatch(text, -1) {
			if id, ok := strings.CutPrefix(m[1], "#"); !ok || strings.Count(text, `id="`+id+`"`) != 1 {
				t.Errorf("%s: link to %q", path, m[1])
			}
		}
	}
}

// The page has all that the Markdown has: sections, cells, paragraphs.
func TestThePageHasEveryTable(t *testing.T) {
	for path, r := range reports(t) {
		text := html.UnescapeString(written(t, r))
		_, sections := r.Sections()
		for _, s := range sections {
			if !strings.Contains(text, "<h2>"+s.Heading+"</h2>") {
				t.Errorf("%s: no section %s", path, s.Heading)
			}
			for _, cells := range s.Rows {
				for _, c := range cells {
					if !strings.Contains(text, ">"+typeset(c)+"</td>") {
						t.Errorf("%s: %s: no cell %q", path, s.Heading, c)
					}
				}
			}
			for _, p := range s.Text {
				if !strings.Contains(text, "<p>"+typeset(p)+"</p>") {
					t.Errorf("%s: %s: no paragraph %q", path, s.Heading, p)
				}
			}
		}
		for _, want := range []string{r.Machine.CPU, r.Machine.Kernel, r.Machine.LoadBefore, "Datapath: ", r.Command} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not on the page", path, want)
			}
		}
		if missed := slices.ContainsFunc(r.Budgets, func(b bench.Budget) bool { return !b.Met }); strings.Contains(text, "<details>\n<summary>") != missed {
			t.Errorf("%s: missed budgets: %v; they must be folded", path, missed)
		}
		if !strings.Contains(text, "tr.first td:first-child{position:sticky") {
			t.Errorf("%s: the first column of tables does not stay", path)
		}
		for _, b := range r.Budgets {
			if !b.Met && !strings.Contains(text, b.Backend+": "+typeset(b.What)+": "+b.Measured) {
				t.Errorf("%s: missed budget %s is not in the summary", path, b.What)
			}
		}
	}
}

// numbers are all of a report in JSON.
func numbers(t *testing.T, r *bench.Report) map[float64]bool {
	t.Helper()
	var b strings.Builder
	if err := r.JSON(&b); err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal([]byte(b.String()), &v); err != nil {
		t.Fatal(err)
	}
	all := map[float64]bool{}
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case float64:
			all[v] = true
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for _, e := range v {
				walk(e)
			}
		}
	}
	walk(v)
	return all
}

func TestFiguresDrawMeasuredValues(t *testing.T) {
	for path, r := range reports(t) {
		known := numbers(t, r)
		drawn := regexp.MustCompile(`data-value="([^"]*)"`).FindAllStringSubmatch(written(t, r), -1)
		if len(drawn) < 40 {
			t.Errorf("%s: %d values are drawn", path, len(drawn))
		}
		for _, m := range drawn {
			v, err := strconv.ParseFloat(m[1], 64)
			if err != nil || !known[v] {
				t.Errorf("%s: %s is drawn, and not in the report (%v)", path, m[1], err)
			}
		}
	}
}

// TestFigures: reports with all parts have all figures.
func TestFigures(t *testing.T) {
	const want = "connections connection-first connection-p50 connection-p99 connection-cpu parallel-connections round-trip-p50 round-trip-p99 round-trip-cpu throughput stream-cpu " +
		"enforcement load-cpu load-wall change-latency change-cpu foreign-change memory engine"
	for path, r := range reports(t) {
		var names []string
		for _, f := range Figures(r) {
			names = append(names, f.Name)
			if f.Title == "" || f.Caption == "" {
				t.Errorf("%s: figure %s has title %q and caption %q", path, f.Name, f.Title, f.Caption)
			}
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: figures %s, want %s", path, got, want)
		}
	}
}

func TestBusyMachineIsReported(t *testing.T) {
	for load, want := range map[string]bool{"39.01 46.50 39.11": true, "0.64 0.66 2.46": false, "unknown": false, "": false} {
		r := &bench.Report{Backends: []string{"nftables"}, Machine: measure.Machine{Cores: 2, LoadBefore: load}}
		if got := strings.Contains(written(t, r), "The machine was busy."); got != want {
			t.Errorf("load %q: shown %v", load, got)
		}
	}
}

func TestDatapathIsNamed(t *testing.T) {
	for want, r := range map[string]*bench.Report{
		"none":                               {Backends: []string{"nftables"}},
		"netdev (Open vSwitch in userspace)": {Backends: []string{"nftables", "openflow"}},
		"system (the kernel's module)":       {Backends: []string{"nftables"}, Packets: &bench.Packets{Datapath: "system"}},
	} {
		if got := datapaths(r); len(got) != 1 || got[0].Name != want || got[0].Meaning == "" {
			t.Errorf("%+v, want %s", got, want)
		}
	}
	r := &bench.Report{Backends: []string{"nftables"}, Enforcement: &bench.Enforcement{Datapath: "netdev"}}
	if got := datapaths(r); !strings.Contains(got[0].Meaning, "say nothing about the speed of the kernel's datapath") {
		t.Errorf("netdev: %+v", got)
	}
}

// FuzzWrite: reports that decode can be shown.
func FuzzWrite(f *testing.F) {
	// Small ones: from a whole report little of a minute is left for trying.
	f.Add([]byte(`{"version":2,"rounds":1,"profile":{"name":"w1"},"backends":["nftables","openflow"],"results":[
		{"backend":"nftables","case":"first-load","wallSeconds":{"rounds":[1,2]},"cpuSeconds":{"rounds":[1,2]},"peakRSSBytes":{"rounds":[1e8]}},
		{"backend":"openflow","case":"rule-changed","cpuSeconds":{"rounds":[0.1]},"latency":{"p50Seconds":0.1,"p99Seconds":0.2,"count":9}}],
		"engine":[{"workload":"SmallNamespaces","placement":"one-node","engineCPUSeconds":{"rounds":[3]}}],
		"budgets":[{"backend":"nftables","what":"a","limit":"<= 1 s","measured":"2 s"}]}`))
	f.Add([]byte(`{"version":2,"backends":["a"],"results":[{"backend":"a","case":"idle"}]}`))
	f.Add([]byte(`{"version":2,"backends":["a"],"packets":{"points":[{}],"results":[{"backend":"a","kind":"stream","perSecond":{"rounds":[1e308,-1]}}]}}`))
	f.Add([]byte(`{"version":2,"backends":["a"],"enforcement":{"datapath":"system","results":[{"backend":"a","change":"denied","first":{"p50Seconds":1,"count":1}}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := bench.Decode(data)
		if err != nil {
			return
		}
		written(t, r)
	})
}
