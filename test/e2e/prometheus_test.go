package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/lab"
)

const monitoring = "../../deploy/components/monitoring/"

// prometheus is a Prometheus in the namespace of a lab's node.
type prometheus struct {
	node   *lab.Node
	client http.Client
}

// startPrometheus starts Debian's Prometheus, which scrapes the agent of a node every second
// and has the rules.
func startPrometheus(t *testing.T, n *lab.Node, groups any) *prometheus {
	t.Helper()
	program, err := exec.LookPath("prometheus")
	if err != nil {
		t.Skip("prometheus is not installed: make setup installs it")
	}
	dir := t.TempDir()
	write := func(name string, content any) {
		t.Helper()
		text, err := yaml.Marshal(content)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write("rules.yaml", map[string]any{"groups": groups})
	// Job and label are those of the PodMonitor.
	write("prometheus.yaml", map[string]any{
		"global":     map[string]any{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files": []string{"rules.yaml"},
		"scrape_configs": []any{map[string]any{
			"job_name":       "felixlike",
			"static_configs": []any{map[string]any{"targets": []string{"127.0.0.1:10288"}, "labels": map[string]string{"node": n.Name()}}},
		}},
	})
	cmd := exec.Command("nsenter", "--net="+n.Namespace().Path(), program, "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:9090", "--log.level=warn")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(unix.SIGTERM) //nolint:errcheck // it may have ended
		cmd.Wait()                       //nolint:errcheck // it was ended
		if t.Failed() {
			t.Logf("prometheus:\n%s", &log)
		}
	})
	return &prometheus{n, http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = n.Namespace().Do(func() error {
				conn, err = new(net.Dialer).DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}}}
}

// ask returns the data of an answer of Prometheus' API.
func (p *prometheus) ask(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:9090/api/v1/"+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s %w: %s", path, response.Status, err, body)
	}
	return json.Unmarshal(body, &struct{ Data any }{into})
}

// series returns how many series a query has.
func (p *prometheus) series(ctx context.Context, query string) (int, error) {
	var data struct{ Result []json.RawMessage }
	err := p.ask(ctx, "query?query="+url.QueryEscape(query), &data)
	return len(data.Result), err
}

// comparison is that of an alert with its limit.
var comparison = regexp.MustCompile(` (==|>) ([0-9.]+)$`)

// TestMonitoring: a real Prometheus scrapes a real agent. It takes the rules, each query of the
// dashboard and each expression of the rules has series, and no alert is due on a node that works.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	var rules struct {
		Spec struct {
			Groups []map[string]any `json:"groups"`
		} `json:"spec"`
	}
	text, err := os.ReadFile(monitoring + "rules.yaml")
	if err == nil {
		err = yaml.Unmarshal(text, &rules)
	}
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if text, err = os.ReadFile(monitoring + "dashboard.json"); err == nil {
		err = json.Unmarshal(text, &dashboard)
	}
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t)
	set(t, l, state(t, threeNodes))
	p := startPrometheus(t, l.Node("node1"), rules.Spec.Groups)
	// A rate needs two scrapes.
	eventually.True(t, "Prometheus has scraped the agent", func() bool {
		n, err := p.series(t.Context(), `count_over_time(felixlike_build_info[1m]) >= 3`)
		return err == nil && n == 1
	})
	hasSeries := func(what, query string) {
		t.Helper()
		n, err := p.series(t.Context(), query)
		if err != nil || n == 0 {
			t.Errorf("%s: %d series, %v: %s", what, n, err, query)
		}
	}
	grafana := strings.NewReplacer("$__rate_interval", "1m", "$node", ".*")
	queries := 0
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			queries++
			hasSeries("panel "+panel.Title, grafana.Replace(target.Expr))
		}
	}
	var loaded struct {
		Groups []struct {
			Rules []struct{ Name, Query, Health, LastError string }
		}
	}
	eventually.True(t, "Prometheus has evaluated the rules", func() bool {
		if err := p.ask(t.Context(), "rules", &loaded); err != nil || len(loaded.Groups) == 0 {
			return false
		}
		for _, r := range loaded.Groups[0].Rules {
			if r.Health == "unknown" {
				return false
			}
		}
		return true
	})
	for _, r := range loaded.Groups[0].Rules {
		if r.Health != "ok" {
			t.Errorf("%s: %s", r.Name, r.LastError)
		}
		// With bool, a comparison has all series, also those that it is not true for.
		if !comparison.MatchString(r.Query) {
			t.Errorf("%s compares nothing: %s", r.Name, r.Query)
		}
		hasSeries("alert "+r.Name, comparison.ReplaceAllString(r.Query, " $1 bool $2"))
		if n, err := p.series(t.Context(), r.Query); err != nil || n != 0 {
			t.Errorf("%s: %d series, %v, on a node that works", r.Name, n, err)
		}
	}
	t.Logf("%d queries of the dashboard, %d rules", queries, len(loaded.Groups[0].Rules))
	if queries == 0 || len(loaded.Groups[0].Rules) == 0 {
		t.Error("nothing was queried")
	}
}
