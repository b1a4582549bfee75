package deploy

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	syaml "sigs.k8s.io/yaml"
)

// rulesFile is a PrometheusRule.
type rulesFile struct {
	Spec struct {
		Groups []struct {
			Name  string `json:"name"`
			Rules []struct {
				Alert       string            `json:"alert"`
				Expr        string            `json:"expr"`
				For         string            `json:"for"`
				Labels      map[string]string `json:"labels"`
				Annotations map[string]string `json:"annotations"`
			} `json:"rules"`
		} `json:"groups"`
	} `json:"spec"`
}

func alerts(t *testing.T) (rules rulesFile) {
	t.Helper()
	text, err := os.ReadFile("components/monitoring/rules.yaml")
	if err == nil {
		err = syaml.Unmarshal(text, &rules)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

// TestRunbooks: each alert names its fault and the consequences, and its runbook is a page of docs/operate/runbooks, with its name as the title.
func TestRunbooks(t *testing.T) {
	seen := 0
	for _, g := range alerts(t).Spec.Groups {
		for _, r := range g.Rules {
			seen++
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
				t.Errorf("%s: %+v", r.Alert, r)
			}
			page := "docs/operate/runbooks/" + strings.ToLower(r.Alert) + ".md"
			if url := r.Annotations["runbook_url"]; url != "https://github.com/felixlike/felixlike/blob/main/"+page {
				t.Errorf("%s: runbook %s", r.Alert, url)
			}
			if text, err := os.ReadFile("../" + page); err != nil || !strings.HasPrefix(string(text), "# "+r.Alert+"\n") {
				t.Errorf("%s: %v\n%s", page, err, text)
			}
		}
	}
	if seen == 0 {
		t.Error("no alerts")
	}
}

// TestAlerts checks the rules with promtool. Each alert fires in its case of testdata/alerts.yaml,
// and no alert fires on a node that works.
func TestAlerts(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not installed: make setup installs it")
	}
	dir := t.TempDir()
	rules, err := syaml.Marshal(map[string]any{"groups": alerts(t).Spec.Groups})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "rules.yaml"), rules, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	cases, err := os.ReadFile("testdata/alerts.yaml")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "alerts.yaml"), cases, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"check", "rules", "rules.yaml"}, {"test", "rules", "alerts.yaml"}} {
		cmd := exec.Command(promtool, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
	for _, g := range alerts(t).Spec.Groups {
		for _, r := range g.Rules {
			if !strings.Contains(string(cases), `alertname="`+r.Alert+`",alertstate="firing"`) {
				t.Errorf("%s has no case in which it fires", r.Alert)
			}
		}
	}
}

// builtMonitoring compares what kustomize and helm make of the component monitoring, and with
// the objects without it.
func builtMonitoring(t *testing.T, dir string) {
	t.Helper()
	component := read(t, filepath.Join(dir, "monitoring.yaml"))
	chart := read(t, filepath.Join(dir, "chart-monitoring.yaml"))
	plain := read(t, filepath.Join(dir, "chart.yaml"))
	added := []string{"PodMonitor felixlike", "PrometheusRule felixlike", "ConfigMap felixlike-dashboard"}
	if len(chart) != len(plain)+len(added) || len(component) != len(read(t, "felixlike.yaml"))+len(added) {
		t.Errorf("monitoring: %d objects of the component, %d of the chart, which has %d without it", len(component), len(chart), len(plain))
	}
	for _, name := range added {
		if d := cmp.Diff(component[name]["spec"], chart[name]["spec"]); d != "" || component[name] == nil {
			t.Errorf("%s (-component +chart):\n%s", name, d)
		}
		if of := chart[name]["metadata"].(map[string]any); of["namespace"] != "felixlike-system" {
			t.Errorf("%s: %v", name, of)
		}
	}
	if d := cmp.Diff(rulesOf(t, component), rulesOf(t, chart)); d != "" {
		t.Errorf("rules (-component +chart):\n%s", d)
	}
	want, err := os.ReadFile("components/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, all := range []map[string]object{component, chart} {
		data := all["ConfigMap felixlike-dashboard"]["data"].(map[string]any)
		if d := cmp.Diff(strings.TrimSpace(string(want)), strings.TrimSpace(data["felixlike.json"].(string))); d != "" {
			t.Errorf("dashboard (-file +object):\n%s", d)
		}
	}
	// The agent listens where the PodMonitor's port is: by the file in the chart, by the
	// environment in the component, which leaves the file to the overlay.
	address := settings(t, chart["ConfigMap felixlike-config"]["data"].(map[string]any)["agent.yaml"].(string)).HealthAddress
	if address != ":10288" {
		t.Errorf("the chart's agents listen at %q", address)
	}
	for what, all := range map[string]map[string]object{"component": component, "chart": chart} {
		spec := all["DaemonSet felixlike"]["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		agent := spec["containers"].([]any)[0].(map[string]any)
		port := map[string]any{"name": "metrics", "containerPort": float64(10288), "protocol": "TCP"}
		if d := cmp.Diff([]any{port}, agent["ports"]); d != "" {
			t.Errorf("%s: ports (-want +got):\n%s", what, d)
		}
		if what != "component" {
			continue
		}
		listens := false
		for _, e := range agent["env"].([]any) {
			listens = listens || maps.Equal(e.(map[string]any), map[string]any{"name": "FELIXLIKE_HEALTH_ADDRESS", "value": ":10288"})
		}
		if !listens || len(agent["env"].([]any)) != 2 {
			t.Errorf("environment %v", agent["env"])
		}
	}
}

func rulesOf(t *testing.T, all map[string]object) rulesFile {
	t.Helper()
	text, err := syaml.Marshal(all["PrometheusRule felixlike"])
	var rules rulesFile
	if err == nil {
		err = syaml.Unmarshal(text, &rules)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rules
}
