package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// release is a folder with the files of a release, as a user downloads it.
type release struct {
	version, dir string
	// tools has the unpacked programs for this machine.
	tools string
}

// file returns the path of a file; VERSION and ARCH in its name stand for those of the release.
func (r release) file(name string) string {
	return filepath.Join(r.dir, strings.NewReplacer("VERSION", r.version, "ARCH", runtime.GOARCH).Replace(name))
}

// releaseOf returns a release: that of the folder which releasesVariable names, or else one that is
// built of this tree for this machine. It checks and unpacks the files as docs/reference/release.md says.
func releaseOf(t *testing.T, k kit, version string) release {
	t.Helper()
	r := release{version: version, tools: t.TempDir()}
	if given := os.Getenv(releasesVariable); given != "" {
		r.dir = filepath.Join(given, version)
	} else {
		start := time.Now()
		r.dir = filepath.Join(t.TempDir(), version)
		build := exec.CommandContext(t.Context(), filepath.Join(k.root, "deploy", "release", "build"))
		build.Env = append(os.Environ(), "VERSION="+version, "IMAGE=", "ARCHES="+runtime.GOARCH, "OUT="+r.dir)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", version, err, out)
		}
		t.Logf("%s is built (%s)", version, since(start))
	}
	r.run(t, "sha256sum", "-c", "--quiet", "SHA256SUMS")
	for _, name := range []string{"felixctl-VERSION-linux-ARCH.tar.gz", "felixlike-VERSION-linux-ARCH.tar.gz", "felixlike-kustomize-VERSION.tar.gz"} {
		r.run(t, "tar", "-xzf", r.file(name), "-C", r.tools)
	}
	for _, program := range []string{"felixctl", "felixlab", "felixlike-agent"} {
		if out := r.run(t, filepath.Join(r.tools, program), "--version"); !strings.Contains(out, version+" ") {
			t.Errorf("%s of %s says %s", program, version, out)
		}
	}
	return r
}

// run runs a program in the folder of the release.
func (r release) run(t *testing.T, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = r.dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestRelease installs a release from its files alone, upgrades it and goes back under traffic, and
// removes it. Nothing of the source tree is used: manifests, image and tools are the release's.
func TestRelease(t *testing.T) {
	switch suite() {
	case full:
	default:
		t.Skipf("some minutes: set %s=%s", suiteVariable, full)
	}
	k := findKit(t)
	first, next := releaseOf(t, k, "v0.1.0"), releaseOf(t, k, "v0.1.1")
	const image = "felixlike-image-VERSION.tar"
	s := newSiteWith(t, k, "nftables", "iptables", first.file(image), next.file(image))
	s.before = s.snapshots(t)
	ask := s.pluginIn(first.tools)

	apply := func(t *testing.T, r release) {
		t.Helper()
		start := time.Now()
		s.kubectl(t, "apply", "-f", r.file("felixlike.yaml"))
		s.kubectl(t, "-n", system, "rollout", "status", daemonSet, "--timeout="+rolledTime.String())
		t.Logf("%s is rolled out (%s)", r.version, since(start))
		ask(t, 0, "status", "--wait", "1m")
		if out := ask(t, 0, "version"); strings.Count(out, r.version+" ") < len(s.Nodes()) {
			t.Errorf("after %s:\n%s", r.version, out)
		}
	}
	if !t.Run("install", func(t *testing.T) { apply(t, first) }) {
		s.logState(t)
		return
	}
	t.Run("dry run", func(t *testing.T) { testDryRun(t, s, next) })
	t.Run("upgrade", func(t *testing.T) {
		testAgentsAlone(t, s, "upgraded", func() { apply(t, next) })
		if out := ask(t, 0, "version"); !strings.Contains(out, "in a pod of another version on all 2 nodes") {
			t.Errorf("version:\n%s", out)
		}
	})
	t.Run("upgrade Open vSwitch", func(t *testing.T) {
		s.underTraffic(t, "switched", func() { s.replaceSwitches(t) })
		if out := ask(t, 0, "version"); strings.Contains(out, "another version") {
			t.Errorf("version:\n%s", out)
		}
	})
	t.Run("back", func(t *testing.T) { testAgentsAlone(t, s, "back", func() { apply(t, first) }) })
	t.Run("back at once", func(t *testing.T) {
		// The roll-out of the next version has only begun.
		testAgentsAlone(t, s, "undone", func() {
			s.kubectl(t, "apply", "-f", next.file("felixlike.yaml"))
			apply(t, first)
		})
	})
	t.Run("uninstall", func(t *testing.T) {
		s.uninstall(t, first.file("felixlike.yaml"), first.file("felixlike-uninstall.yaml"))
	})
}

// operatorKinds stands for the definitions of the Prometheus operator, whose schemas are not here.
const operatorKinds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podmonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: PodMonitor, plural: podmonitors, singular: podmonitor}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: prometheusrules.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: PrometheusRule, plural: prometheusrules, singular: prometheusrule}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// helmModule and kubeVersion are the helm and the version of Kubernetes that deploy/generate uses.
const (
	helmModule  = "helm.sh/helm/v3/cmd/helm@v3.19.0"
	kubeVersion = "1.35.0"
)

// testDryRun has the API server judge every form of a release: manifests, overlays, components,
// and the chart with the settings that its tests accept. It also refuses an unknown field.
func testDryRun(t *testing.T, s *site, r release) {
	s.apply(t, operatorKinds)
	defer s.kubectl(t, "delete", "crd", "podmonitors.monitoring.coreos.com", "prometheusrules.monitoring.coreos.com")
	s.kubectl(t, "wait", "--for=condition=Established", "crd", "--all", "--timeout=1m")
	// A dry run makes no namespace for the objects that are in it.
	s.kubectl(t, "create", "namespace", "felixlike-uninstall")
	defer s.kubectl(t, "delete", "namespace", "felixlike-uninstall")
	forms := 0
	dry := func(args ...string) {
		t.Helper()
		forms++
		out, err := s.Kubectl(t.Context(), append([]string{"apply", "--dry-run=server", "--validate=strict"}, args...)...)
		if err != nil || !strings.Contains(out, "server dry run") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	dry("-f", r.file("felixlike.yaml"))
	dry("-f", r.file("felixlike-uninstall.yaml"))
	dry("-k", filepath.Join(r.tools, "base"))
	for _, overlay := range []string{"nftables", "iptables", "openflow"} {
		dry("-k", filepath.Join(r.tools, "overlays", overlay))
	}
	for _, component := range []string{"antrea-crds", "monitoring", "without-crds", "without-ovs", "network-policy-only"} {
		dir := filepath.Join(r.tools, "with-"+component)
		text := "resources: [../base]\ncomponents: [../components/" + component + "]\n"
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		dry("-k", dir)
	}
	accepts, err := os.ReadFile(filepath.Join(s.kit.root, "deploy", "testdata", "chart-accepts"))
	if err != nil {
		t.Fatal(err)
	}
	chart := r.file("felixlike-chart-" + strings.TrimPrefix(r.version, "v") + ".tgz")
	rendered := filepath.Join(r.tools, "chart.yaml")
	for settings := range strings.Lines("\n--set crds.antrea=true,monitoring.podMonitor=true,monitoring.rules=true,monitoring.dashboard=true\n" + string(accepts)) {
		helm := exec.CommandContext(t.Context(), "go", append([]string{"run", helmModule, "template", "felixlike", chart, "--namespace", system, "--kube-version", kubeVersion}, strings.Fields(settings)...)...)
		helm.Dir = "/" // helm's modules stay out of ours
		var faults strings.Builder
		helm.Stderr = &faults
		text, err := helm.Output()
		if err != nil {
			t.Fatalf("helm template %s: %v\n%s", settings, err, &faults)
		}
		if err := os.WriteFile(rendered, text, 0o600); err != nil {
			t.Fatal(err)
		}
		dry("-f", rendered)
	}
	wrong := strings.Replace(string(mustRead(t, r.file("felixlike.yaml"))), "hostNetwork: true", "hostNetwrk: true", 1)
	if err := os.WriteFile(rendered, []byte(wrong), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := s.Kubectl(t.Context(), "apply", "--dry-run=server", "--validate=strict", "-f", rendered); err == nil || !strings.Contains(err.Error(), "hostNetwrk") {
		t.Errorf("an unknown field: %v\n%s", err, out)
	}
	t.Logf("the API server takes %d forms", forms)
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
