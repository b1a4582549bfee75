package deploy

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	syaml "sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/config"
)

// accepted renders the chart with each line of testdata/chart-accepts: the API server
// takes the objects, the agent takes the settings.
func accepted(t *testing.T, dir string) {
	t.Helper()
	lines, err := os.ReadFile("testdata/chart-accepts")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(lines)), "\n") {
		got := read(t, filepath.Join(dir, "chart-set-"+strconv.Itoa(i+1)+".yaml"))
		settings(t, as[corev1.ConfigMap](t, got["ConfigMap felixlike-config"]).Data["agent.yaml"])
		sets := daemonSets(t, filepath.Join(dir, "chart-set-"+strconv.Itoa(i+1)+".yaml"))
		want := []string{"felixlike", "felixlike-ovs"}
		switch {
		case strings.Contains(line, "uninstall=true"):
			want = []string{"felixlike-uninstall"}
		case strings.Contains(line, "ovs.install=false"), strings.Contains(line, config.PolicyOnly):
			want = want[:1]
		}
		set := sets[want[0]]
		if have := slices.Sorted(maps.Keys(sets)); !slices.Equal(have, want) || set.Namespace != "felixlike-system" {
			t.Errorf("%s: DaemonSets %v in namespace %q, want %v", line, have, set.Namespace, want)
		}
		if strings.Contains(line, "updateStrategy=RollingUpdate") && sets["felixlike-ovs"].Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType {
			t.Errorf("%s: %+v", line, sets["felixlike-ovs"].Spec.UpdateStrategy)
		}
		if strings.Contains(line, "registry.example.com") && (set.Spec.Template.Spec.Containers[0].Image != "registry.example.com/felixlike:v0.1.0" ||
			set.Spec.Template.Spec.ImagePullSecrets[0].Name != "pull") {
			t.Errorf("%s: image %s", line, set.Spec.Template.Spec.Containers[0].Image)
		}
	}
}

// TestSchema: the chart's schema knows the agent's settings and backends, and no others.
func TestSchema(t *testing.T) {
	var schema struct {
		Properties struct {
			Config struct {
				AdditionalProperties *bool
				Properties           map[string]struct {
					Enum       []string
					Properties map[string]struct{ Enum []string }
				}
			}
		}
	}
	text, err := os.ReadFile("chart/values.schema.json")
	if err == nil {
		err = json.Unmarshal(text, &schema)
	}
	if err != nil {
		t.Fatal(err)
	}
	if a := schema.Properties.Config.AdditionalProperties; a == nil || *a {
		t.Error("config: unknown keys are taken")
	}
	got, want := map[string][]string{}, map[string][]string{}
	for key, p := range schema.Properties.Config.Properties {
		for inner, q := range p.Properties {
			got[key+"."+inner] = q.Enum
		}
		if p.Properties == nil {
			got[key] = p.Enum
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config.Config]()) {
		key := f.Tag.Get("json")
		want[key] = config.Choices(key)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("settings and their choices (-agent +schema):\n%s", d)
	}
}

// normalise parses the text in the ConfigMap, and leaves out the chart's own labels and
// the annotation by which the chart rolls the DaemonSet.
func normalise(t *testing.T, all map[string]object) {
	t.Helper()
	for _, o := range all {
		labels := o["metadata"].(map[string]any)["labels"].(map[string]any)
		for _, name := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"} {
			delete(labels, name)
		}
	}
	data := all["ConfigMap felixlike-config"]["data"].(map[string]any)
	for name, text := range data {
		var value any
		if err := syaml.Unmarshal([]byte(text.(string)), &value); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		data[name] = value
	}
	template := all["DaemonSet felixlike"]["spec"].(map[string]any)["template"].(map[string]any)
	delete(template["metadata"].(map[string]any)["annotations"].(map[string]any), "checksum/config")
}
