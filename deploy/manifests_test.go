// Package deploy tests the manifests: that the agent takes the configuration in
// them, and that base, overlays and chart are the same thing.
package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"
	syaml "sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/config"
)

// object is a Kubernetes object as it is written.
type object map[string]any

func (o object) String() string {
	meta, _ := o["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	kind, _ := o["kind"].(string)
	return kind + " " + name
}

// read returns the objects of a file by kind and name.
func read(t *testing.T, path string) map[string]object {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]object{}
	for decode := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var o object
		err := decode.Decode(&o)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if len(o) > 0 {
			all[o.String()] = o
		}
	}
}

// as returns an object in its type, with an error for fields that it lacks.
func as[T any](t *testing.T, o object) T {
	t.Helper()
	var typed T
	data, err := json.Marshal(o)
	if err == nil {
		err = syaml.UnmarshalStrict(data, &typed)
	}
	if err != nil {
		t.Fatalf("%s: %v", o, err)
	}
	return typed
}

func settings(t *testing.T, text string) config.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
	config.AddFlags(flags)
	if err := flags.Parse([]string{"--config", path}); err != nil {
		t.Fatal(err)
	}
	e, err := config.Load(flags, []string{"FELIXLIKE_NODE_NAME=n1"})
	if err != nil {
		t.Fatal(err)
	}
	return e.Config
}

func TestConfiguration(t *testing.T) {
	c := as[corev1.ConfigMap](t, read(t, "felixlike.yaml")["ConfigMap felixlike-config"])
	want := config.Defaults()
	want.NodeName, want.Datastore, want.OVSRunDir = "n1", "kubernetes", "/run/felixlike/ovs"
	want.CNIConfDir = "/host/etc/cni/net.d" // the container has it there
	if d := cmp.Diff(want, settings(t, c.Data["agent.yaml"]), cmpopts.EquateComparable(netip.Prefix{})); d != "" {
		t.Errorf("settings beside the defaults (-want +got):\n%s", d)
	}
	list, err := libcni.ConfListFromBytes([]byte(c.Data["05-felixlike.conflist"]))
	if err != nil || list.Name != "felixlike" || len(list.Plugins) != 2 || list.Plugins[0].Network.Type != "felixlike-cni" {
		t.Errorf("network configuration: %+v, %v", list, err)
	}
	// A runtime asks for STATUS and GC from 1.1.0 on; containerd 1.6 knows 1.0.0.
	var older struct{ CNIVersion string }
	if err := json.Unmarshal([]byte(c.Data["05-felixlike.conflist"]), &older); err != nil || list.CNIVersion != "1.1.0" || older.CNIVersion != "1.0.0" {
		t.Errorf("version for runtimes that know several %q, for older ones %q, %v", list.CNIVersion, older.CNIVersion, err)
	}
}

// An overlay is the base but for the backend.
func TestOverlays(t *testing.T) {
	base, err := os.ReadFile("base/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, backend := range []string{"nftables", "iptables", "openflow"} {
		text, err := os.ReadFile("overlays/" + backend + "/agent.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.Replace(string(base), "backend: nftables", "backend: "+backend, 1); string(text) != want {
			t.Errorf("%s (-want +got):\n%s", backend, cmp.Diff(want, string(text)))
		}
		if got := settings(t, string(text)).Backend; got != backend {
			t.Errorf("%s: backend %s", backend, got)
		}
	}
}

const clusterPolicies = "CustomResourceDefinition clusternetworkpolicies.policy.networking.k8s.io"

// TestClusterNetworkPolicies: the deployed definition serves the version that the agent reads,
// and no field that the agent does not take.
func TestClusterNetworkPolicies(t *testing.T) {
	crd := as[struct {
		APIVersion, Kind string
		Metadata         map[string]any
		Spec             struct {
			Group, Scope string
			Names        map[string]any
			Versions     []map[string]any
		}
	}](t, read(t, "felixlike.yaml")[clusterPolicies])
	if crd.Spec.Group != v1alpha2.GroupName || crd.Spec.Scope != "Cluster" || len(crd.Spec.Versions) != 1 {
		t.Fatalf("CustomResourceDefinition: %s, %s, %d versions", crd.Spec.Group, crd.Spec.Scope, len(crd.Spec.Versions))
	}
	version := crd.Spec.Versions[0]
	if version["name"] != v1alpha2.GroupVersion.Version || version["served"] != true || version["storage"] != true {
		t.Errorf("version %v, served %v, stored %v", version["name"], version["served"], version["storage"])
	}
	schema, err := json.Marshal(version["schema"])
	if err != nil {
		t.Fatal(err)
	}
	for field, taken := range map[string]bool{`"nodes":`: true, `"networks":`: true, `"destinationNamedPort":`: true, `omainNames`: false} {
		if strings.Contains(string(schema), field) != taken {
			t.Errorf("schema with %s: %v, want %v", field, !taken, taken)
		}
	}
}

// antreaCRDs returns the CustomResourceDefinitions of Antrea's kinds.
func antreaCRDs(t *testing.T) map[string]object {
	t.Helper()
	return read(t, "components/antrea-crds/crds.yaml")
}

// TestAntreaCRDs: there is a definition for each kind that the agent reads. Those of Antrea's and OpenShift's kinds are not installed
// by default, because a cluster may have its own.
func TestAntreaCRDs(t *testing.T) {
	crds := antreaCRDs(t)
	const ownKinds = 2
	maps.Copy(crds, read(t, "components/netnamespaces-crd/crd.yaml"))
	if len(crds) != len(antrea.Kinds())-ownKinds {
		t.Errorf("%d definitions, want %d", len(crds), len(antrea.Kinds())-ownKinds)
	}
	installed := read(t, "felixlike.yaml")
	for _, k := range antrea.Kinds() {
		name := "CustomResourceDefinition " + k.Resource() + "." + k.GroupVersion().Group
		own := k.GroupVersion().Group == antrea.OwnGroupName
		if own {
			crds[name] = installed[name]
		}
		crd := as[struct {
			APIVersion, Kind string
			Metadata         map[string]any
			Spec             struct {
				Group, Scope string
				Names        struct {
					Kind, ListKind, Plural, Singular string
					ShortNames                       []string
				}
				Versions []map[string]any
			}
		}](t, crds[name])
		if crd.Spec.Group != k.GroupVersion().Group || crd.Spec.Names.Kind != k.String() || crd.Spec.Names.Plural != k.Resource() || (crd.Spec.Scope == "Namespaced") != k.Namespaced() {
			t.Errorf("%s: %+v", name, crd.Spec.Names)
		}
		if len(crd.Spec.Versions) != 1 || crd.Spec.Versions[0]["name"] != k.GroupVersion().Version {
			t.Errorf("%s: versions %v", name, crd.Spec.Versions)
		}
		if (installed[name] != nil) != own {
			t.Errorf("felixlike.yaml has %s: %v, want %v", name, !own, own)
		}
	}
}

// TestBuilt compares the output of kustomize and helm, which deploy/generate --check
// builds; a build would take minutes here.
func TestBuilt(t *testing.T) {
	dir := os.Getenv("FELIXLIKE_BUILT")
	if dir == "" {
		t.Skip("deploy/generate --check runs it")
	}
	want := read(t, "felixlike.yaml")
	for _, backend := range []string{"nftables", "iptables", "openflow"} {
		got := read(t, filepath.Join(dir, backend+".yaml"))
		configMap := as[corev1.ConfigMap](t, got["ConfigMap felixlike-config"])
		data, _ := got["ConfigMap felixlike-config"]["data"].(map[string]any)
		if settings(t, configMap.Data["agent.yaml"]).Backend != backend {
			t.Errorf("overlay %s: %v", backend, configMap.Data)
		}
		data["agent.yaml"] = strings.Replace(configMap.Data["agent.yaml"], "backend: "+backend, "backend: nftables", 1)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("overlay %s (-felixlike.yaml +overlay):\n%s", backend, d)
		}
	}

	without := read(t, filepath.Join(dir, "without-crds.yaml"))
	without[clusterPolicies] = want[clusterPolicies]
	if d := cmp.Diff(want, without); d != "" {
		t.Errorf("component without-crds (-felixlike.yaml +component):\n%s", d)
	}

	withoutSwitch(t, dir, want)
	policyOnly(t, dir, want)
	hostsAtBoot(t, dir)

	with := read(t, filepath.Join(dir, "antrea-crds.yaml"))
	added := maps.Clone(want)
	maps.Copy(added, antreaCRDs(t))
	if d := cmp.Diff(added, with); d != "" {
		t.Errorf("component antrea-crds (-felixlike.yaml and crds.yaml +component):\n%s", d)
	}

	chart := read(t, filepath.Join(dir, "chart.yaml"))
	chartWith := read(t, filepath.Join(dir, "chart-antrea-crds.yaml"))
	if len(chartWith) != len(chart)+len(antreaCRDs(t)) {
		t.Errorf("the chart with crds.antrea=true has %d objects, else %d", len(chartWith), len(chart))
	}
	for name, crd := range antreaCRDs(t) {
		if d := cmp.Diff(crd["spec"], chartWith[name]["spec"]); d != "" {
			t.Errorf("chart, %s (-crds.yaml +chart):\n%s", name, d)
		}
	}
	withNumbers := read(t, filepath.Join(dir, "chart-netnamespaces-crd.yaml"))
	crds := read(t, "components/netnamespaces-crd/crd.yaml")
	for name, crd := range crds {
		if d := cmp.Diff(crd["spec"], withNumbers[name]["spec"]); d != "" || len(withNumbers) != len(chart)+len(crds) {
			t.Errorf("chart with crds.netNamespaces=true, %d objects, else %d; %s (-crd.yaml +chart):\n%s", len(withNumbers), len(chart), name, d)
		}
	}
	chartWithout := read(t, filepath.Join(dir, "chart-without-crds.yaml"))
	rest := maps.Clone(chart)
	maps.DeleteFunc(rest, func(name string, _ object) bool { return strings.HasPrefix(name, "CustomResourceDefinition ") })
	if got, want := slices.Sorted(maps.Keys(chartWithout)), slices.Sorted(maps.Keys(rest)); !slices.Equal(got, want) || len(rest) == len(chart) {
		t.Errorf("the chart with crds.install=false has %q, want %q", got, want)
	}
	builtMonitoring(t, dir)
	delete(want, "Namespace felixlike-system") // helm makes it by --create-namespace
	for _, all := range []map[string]object{want, chart} {
		normalise(t, all)
	}
	accepted(t, dir)
	withoutAdmission(t, dir)
	if d := cmp.Diff(want, chart); d != "" {
		t.Errorf("chart (-felixlike.yaml +chart):\n%s", d)
	}
}

// withoutAdmission: for Kubernetes before 1.30 the chart has no policies of admission, and does not grant nodes/status, which only they bind to a node.
func withoutAdmission(t *testing.T, dir string) {
	t.Helper()
	for file, served := range map[string]bool{"chart.yaml": true, "chart-1.29.yaml": false} {
		all := read(t, filepath.Join(dir, file))
		role := as[rbacv1.ClusterRole](t, all["ClusterRole felixlike"])
		granted := slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "nodes/status") })
		if bound := all["ValidatingAdmissionPolicy felixlike-nodes"] != nil; granted != served || bound != served {
			t.Errorf("%s: nodes/status is granted: %v, bound: %v, want %v", file, granted, bound, served)
		}
	}
}

// policyOnly: with networkPolicyOnly there is no DaemonSet of Open vSwitch, and both containers of the agent know the mode.
func policyOnly(t *testing.T, dir string, want map[string]object) {
	t.Helper()
	got := daemonSets(t, filepath.Join(dir, "network-policy-only.yaml"))
	agent, there := got["felixlike"]
	if !there || len(got) != 1 {
		t.Fatalf("network-policy-only: %d DaemonSets", len(got))
	}
	pod := agent.Spec.Template.Spec
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		if !slices.Contains(c.Env, corev1.EnvVar{Name: config.EnvName("trafficMode"), Value: config.PolicyOnly}) {
			t.Errorf("network-policy-only: container %s does not know the mode", c.Name)
		}
	}
	if left := read(t, filepath.Join(dir, "network-policy-only.yaml")); len(left) != len(want)-1 {
		t.Errorf("component network-policy-only has %d objects, want %d", len(left), len(want)-1)
	}
}

// hostsAtBoot: the init container writes a unit into the node's directory, which no other container has.
func hostsAtBoot(t *testing.T, dir string) {
	t.Helper()
	for _, file := range []string{"hosts-at-boot.yaml", "chart-hosts-at-boot.yaml"} {
		pod := daemonSets(t, filepath.Join(dir, file))["felixlike"].Spec.Template.Spec
		units := corev1.VolumeMount{Name: "units", MountPath: "/host/etc/systemd/system"}
		volume := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.Name == "units" && v.HostPath.Path == "/etc/systemd/system" && *v.HostPath.Type == corev1.HostPathDirectoryOrCreate
		})
		install := pod.InitContainers[0]
		if !volume || !slices.Contains(install.Args, "--unit-dir="+units.MountPath) || !slices.Contains(install.VolumeMounts, units) || slices.Contains(pod.Containers[0].VolumeMounts, units) {
			t.Errorf("%s: volume %v, install %v %v", file, volume, install.Args, install.VolumeMounts)
		}
	}
}

// withoutSwitch: where nodes have their own Open vSwitch, the DaemonSet of ours is left out, and the
// agent finds the other one's sockets.
func withoutSwitch(t *testing.T, dir string, want map[string]object) {
	t.Helper()
	for _, file := range []string{"without-ovs.yaml", "chart-without-ovs.yaml"} {
		got := daemonSets(t, filepath.Join(dir, file))
		agent, there := got["felixlike"]
		if !there || len(got) != 1 {
			t.Errorf("%s: %d DaemonSets", file, len(got))
			continue
		}
		pod := agent.Spec.Template.Spec
		volume := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool {
			return v.Name == "ovs-run" && v.HostPath.Path == "/run/openvswitch" && *v.HostPath.Type == corev1.HostPathDirectory
		})
		mount := slices.Contains(pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "ovs-run", MountPath: "/run/openvswitch"})
		env := slices.Contains(pod.Containers[0].Env, corev1.EnvVar{Name: config.EnvName("ovsRunDir"), Value: "/run/openvswitch"})
		if file == "chart-without-ovs.yaml" {
			data := as[corev1.ConfigMap](t, read(t, filepath.Join(dir, file))["ConfigMap felixlike-config"]).Data
			env = settings(t, data["agent.yaml"]).OVSRunDir == "/run/openvswitch"
		}
		if volume < 0 || !mount || !env {
			t.Errorf("%s: volume %d, mounted %v, set %v", file, volume, mount, env)
		}
	}
	if left := read(t, filepath.Join(dir, "without-ovs.yaml")); len(left) != len(want)-1 {
		t.Errorf("component without-ovs has %d objects, want %d", len(left), len(want)-1)
	}
}
