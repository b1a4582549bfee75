package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/felixlike/felixlike/bench"
)

// run runs `felixctl bench` with arguments.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := Commands()
	c.SilenceUsage, c.SilenceErrors = true, true
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	err := c.Execute()
	return out.String(), err
}

func TestWrongUsageIsNamed(t *testing.T) {
	for want, args := range map[string][]string{
		`--profile: profile "huge": must be one of small, w1, w1-100`: {"run", "--profile", "huge"},
		`--backends: backend "ebpf": must be one of nftables`:         {"run", "--backends", "ebpf"},
		`--output "yaml": must be one of text, json, markdown`:        {"run", "-o", "yaml"},
		`no such file`: {"report", filepath.Join(t.TempDir(), "none.json")},
	} {
		if _, err := run(t, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %s", args, err, want)
		}
	}
}

func TestReportPrintsWhatWasSaved(t *testing.T) {
	r := &bench.Report{Version: bench.ReportVersion, Command: "felixctl bench run", Rounds: 1, Backends: []string{"nftables"}}
	out := filepath.Join(t.TempDir(), "new", "result")
	if err := save(r, out); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(out + ".md")
	if err != nil {
		t.Fatal(err)
	}
	for format, want := range map[string]string{"text": "Benchmark", "markdown": string(page), "json": `"command": "felixctl bench run"`} {
		got, err := run(t, "report", out+".json", "-o", format)
		if err != nil || !strings.Contains(got, want) {
			t.Errorf("-o %s: error %v, output %q", format, err, got)
		}
		if format == "json" && !json.Valid([]byte(got)) {
			t.Errorf("no JSON: %s", got)
		}
	}
}

func TestProgressIsALineATurn(t *testing.T) {
	var out strings.Builder
	p := &progress{out: &out, started: time.Now()}
	p.Turn(1, 2, "nftables")
	p.Case("first-load")
	p.Case("restart")
	p.Done()
	if got, want := out.String(), "[0s] round 1 of 2, nftables: first-load restart (0s)\n"; got != want {
		t.Errorf("progress %q, want %q", got, want)
	}
}
