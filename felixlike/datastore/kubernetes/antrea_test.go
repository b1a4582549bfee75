package kubernetes_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/datastore/kubernetes"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/eventually"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

// antreaClient writes objects of Antrea's API.
type antreaClient struct{ dynamic.Interface }

func newAntreaClient(t *testing.T, config *rest.Config) antreaClient {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return antreaClient{c}
}

func (c antreaClient) of(id antrea.ID) dynamic.ResourceInterface {
	r := c.Resource(id.Kind.GroupVersion().WithResource(id.Kind.Resource()))
	if id.Kind.Namespaced() {
		return r.Namespace(id.Namespace)
	}
	return r
}

// put creates or replaces an object with a spec in YAML, and fields beside it.
func (c antreaClient) put(t *testing.T, id antrea.ID, text string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	o.SetAPIVersion(id.Kind.GroupVersion().String())
	o.SetKind(id.Kind.String())
	o.SetNamespace(id.Namespace)
	o.SetName(id.Name)
	if old, err := c.of(id).Get(t.Context(), id.Name, metav1.GetOptions{}); err == nil {
		o.SetResourceVersion(old.GetResourceVersion())
		if _, err := c.of(id).Update(t.Context(), o, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
			t.Fatal(err)
		}
		return
	}
	if _, err := c.of(id).Create(t.Context(), o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
		t.Fatal(err)
	}
}

// ids has an object of each kind.
func antreaIDs() []antrea.ID {
	var all []antrea.ID
	for _, k := range antrea.Kinds() {
		id := antrea.ID{Kind: k, Name: "p"}
		if k.Namespaced() {
			id.Namespace = "x"
		}
		all = append(all, id)
	}
	return all
}

func antreaKeys() []string {
	var all []string
	for _, k := range antrea.Kinds() {
		all = append(all, k.Resource()+"."+k.GroupVersion().Group)
	}
	return all
}

const (
	antreaTier   = `spec: {priority: 60}`
	antreaGroup  = `spec: {podSelector: {matchLabels: {a: b}}}`
	antreaPolicy = `spec: {priority: 3, tier: p, appliedTo: [{podSelector: {}}], ingress: [{action: Drop, from: [{group: p}]}]}`
)

func antreaText(k antrea.Kind) string {
	switch k {
	case antrea.KindTier:
		return antreaTier
	case antrea.KindClusterGroup, antrea.KindGroup:
		return antreaGroup
	case antrea.KindExternalIPPool, antrea.KindOwnExternalIPPool:
		return `spec: {ipRanges: [{cidr: 192.0.2.0/24}, {start: 'fd00::1', end: 'fd00::9'}], nodeSelector: {matchLabels: {a: b}}}`
	case antrea.KindEgress:
		return `spec: {egressIP: 192.0.2.100, appliedTo: {podSelector: {}}}`
	case antrea.KindNodeEgress:
		return `spec: {egressIP: 192.0.2.100, node: n1, appliedTo: {podSelector: {}}}`
	case antrea.KindNetNamespace:
		return `{netname: p, netid: 7}`
	case antrea.KindHostSubnet:
		return `{host: p, hostIP: 192.0.2.1, subnet: 10.0.0.0/24, egressIPs: [192.0.2.100], egressCIDRs: [192.0.2.128/25]}`
	case antrea.KindEgressNetworkPolicy:
		return `spec: {egress: [{type: Deny, to: {cidrSelector: 192.0.2.0/24}}]}`
	}
	return antreaPolicy
}

// TestAntreaKindsArrive: a cluster without Antrea's kinds is in sync at once. The agent lists each
// kind once, then asks with one request for all of a group, and the log has one line for each group. If only
// a part of the kinds is there, it is read, and the log names the rest.
func TestAntreaKindsArrive(t *testing.T) {
	f := newFixture(t)
	keys := antreaKeys()
	f.Refuse(http.StatusNotFound, keys...)
	for _, k := range keys {
		f.Hide(k, true)
	}
	client := newAntreaClient(t, f.Config(kubernetestest.Admin))
	for _, id := range antreaIDs() {
		client.put(t, id, antreaText(id.Kind))
	}
	lines := &logLines{}
	source, err := kubernetes.New(kubernetes.Options{Config: f.Config("agent"), Node: "n1", NetNamespaces: true, Log: slog.New(slog.NewTextHandler(lines, nil))})
	if err != nil {
		t.Fatal(err)
	}
	source.AskEvery(10 * time.Millisecond)
	v := kubernetestest.Follow(t, source)
	seen := v.Until(t, "in sync", func(s kubernetestest.Seen) bool { return s.Last.InSync })
	if len(seen.Antrea) > 0 || len(seen.Last.Problems) > 0 {
		t.Errorf("objects: %v, problems: %v", seen.Antrea, seen.Last.Problems)
	}
	eventually.True(t, "it asks five times", func() bool { return f.Asked("/apis/crd.antrea.io/v1beta1") >= 5+len(keys)-1 })
	for _, k := range keys {
		if n := f.Refusals(k); n != 1 {
			t.Errorf("%d lists of %s", n, k)
		}
	}
	if text := lines.String(); strings.Count(text, "does not serve") != 3 || strings.Contains(text, "level=WARN") {
		t.Errorf("log:\n%s", text)
	}

	f.Refuse(0, keys[1:]...)
	for _, k := range keys[1:] {
		f.Hide(k, false)
	}
	v.Until(t, "all kinds but one", func(s kubernetestest.Seen) bool { return len(s.Antrea) == len(keys)-1 && len(s.Last.Problems) == 0 })
	if text := lines.String(); !strings.Contains(text, "kinds=[Tier.crd.antrea.io]") {
		t.Errorf("the log does not name the missing kind:\n%s", text)
	}
	f.Refuse(0, keys[0])
	f.Hide(keys[0], false)
	v.Until(t, "the last kind", func(s kubernetestest.Seen) bool { return len(s.Antrea) == len(keys) })
}

// TestForbiddenAntreaKinds: an agent that may not read them is not in sync, and status names each
// of them. Without the kinds, it is in sync.
func TestForbiddenAntreaKinds(t *testing.T) {
	f := newFixture(t)
	keys := antreaKeys()
	f.Refuse(http.StatusForbidden, keys...)
	lines := &logLines{}
	v := kubernetestest.Open(t, f.Config("agent"), slog.New(slog.NewTextHandler(lines, nil)), kubernetestest.NetNamespaces)
	v.Until(t, "the refusals are named", func(s kubernetestest.Seen) bool {
		named := 0
		for _, p := range s.Last.Problems {
			for name := range strings.SplitSeq(p.Field, ", ") {
				if slices.Contains(keys, name) && strings.Contains(strings.ToLower(p.Reason), "forbidden") {
					named++
				}
			}
		}
		return named == len(keys) && !s.Last.InSync
	})
	eventually.True(t, "four refusals", func() bool { return f.Refusals(keys[0]) >= 4 })
	for _, k := range keys {
		if n := strings.Count(lines.String(), "resource="+k+" "); n != 1 {
			t.Errorf("%d lines about %s:\n%s", n, k, lines)
		}
	}
	for _, k := range keys {
		f.Hide(k, true)
	}
	v.Until(t, "in sync", func(s kubernetestest.Seen) bool { return s.Last.InSync && len(s.Last.Problems) == 0 })
}

// TestAntreaObjectsChange: objects of all kinds come, change and go, beside objects of other
// groups with the same names.
func TestAntreaObjectsChange(t *testing.T) {
	f := newFixture(t)
	f.clusterPolicy(t, "p")
	client := newAntreaClient(t, f.Config(kubernetestest.Admin))
	v := f.open(t)
	antreaChanges(t, v, client)
	if seen := v.Sync(t); seen.ClusterPolicies["p"] == nil {
		t.Error("the ClusterNetworkPolicy of another group is gone")
	}
}

// antreaChanges puts, changes and deletes an object of each kind.
func antreaChanges(t *testing.T, v *kubernetestest.View, client antreaClient) {
	t.Helper()
	for _, id := range antreaIDs() {
		client.put(t, id, antreaText(id.Kind))
	}
	seen := v.Sync(t)
	for _, id := range antreaIDs() {
		if seen.Antrea[id] == nil {
			t.Errorf("%s is missing", id.Ref())
		}
	}
	if len(seen.Last.Problems) > 0 {
		t.Errorf("problems: %v", seen.Last.Problems)
	}
	tier, group, policy := antreaIDs()[0], antreaIDs()[2], antreaIDs()[4]
	client.put(t, tier, `spec: {priority: 61}`)
	client.put(t, group, `spec: {ipBlocks: [{cidr: 192.0.2.0/24}]}`)
	client.put(t, policy, strings.Replace(antreaPolicy, "priority: 3", "priority: 3.25", 1))
	seen = v.Sync(t)
	if got := seen.Antrea[tier].(*antrea.Tier).Spec.Priority; got != 61 {
		t.Errorf("priority of the tier: %d", got)
	}
	if got := seen.Antrea[group].(*antrea.Group).Spec; got.PodSelector != nil || len(got.IPBlocks) != 1 {
		t.Errorf("group: %+v", got)
	}
	if got := seen.Antrea[policy].(*antrea.NetworkPolicy).Spec; got.Priority != 3.25 || got.Ingress[0].From[0].Group != "p" {
		t.Errorf("policy: %+v", got)
	}
	for _, id := range antreaIDs() {
		if err := client.of(id).Delete(t.Context(), id.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if seen = v.Sync(t); len(seen.Antrea) > 0 {
		t.Errorf("deleted objects are there: %v", seen.Antrea)
	}
}

// TestAntreaFieldsOfNewerVersions: what is not understood is a problem with object and field, and
// the object is delivered closed.
func TestAntreaFieldsOfNewerVersions(t *testing.T) {
	f := newFixture(t)
	client := newAntreaClient(t, f.Config(kubernetestest.Admin))
	antreaFaults(t, f.open(t), client)
}

func antreaFaults(t *testing.T, v *kubernetestest.View, client antreaClient) {
	t.Helper()
	for _, c := range []struct {
		kind        antrea.Kind
		text, field string
	}{
		{antrea.KindTier, `spec: {priority: 60, order: first}`, "spec.order"},
		{antrea.KindClusterGroup, `spec: {podSelector: {matchNames: [a]}}`, "spec.podSelector.matchNames"},
		{antrea.KindGroup, `{spec: {}, members: []}`, "members"},
		{antrea.KindClusterNetworkPolicy, `spec: {priority: 3, appliedTo: [{podSelector: {}}], ingress: [{action: Allow, from: [{sni: x}]}]}`, "spec.ingress[0].from[0].sni"},
		{antrea.KindNetworkPolicy, `spec: {priority: 3, appliedTo: [{podSelector: {}}], egres: [{action: Drop}]}`, "spec.egres"},
		{antrea.KindOwnExternalIPPool, `spec: {ipRanges: [], nodeSelector: {}, nodes: []}`, "spec.nodes"},
		{antrea.KindEgress, `spec: {egressIP: 192.0.2.100, appliedTo: {podSelector: {}}, pool: p}`, "spec.pool"},
		{antrea.KindNodeEgress, `spec: {egressIP: 192.0.2.100, node: n1, appliedTo: {podSelectors: {}}}`, "spec.appliedTo.podSelectors"},
		{antrea.KindNetNamespace, `{netname: p, netid: 0, global: true}`, "global"},
		{antrea.KindHostSubnet, `{host: p, hostIP: 192.0.2.1, subnet: 10.0.0.0/24, addresses: []}`, "addresses"},
		{antrea.KindEgressNetworkPolicy, `spec: {egress: [{type: Deny, to: {cidrSelector: 192.0.2.0/24, port: 80}}]}`, "spec.egress[0].to.port"},
	} {
		id := antreaIDs()[c.kind-antrea.KindTier]
		client.put(t, id, c.text)
		seen := v.Sync(t)
		want := model.Problem{Object: id.Ref(), Field: c.field, Reason: "unknown field; fails closed"}
		if problems := seen.Last.Problems; len(problems) != 1 || problems[0] != want {
			t.Errorf("problems: %v, want %v", problems, want)
		}
		if seen.Antrea[id] == nil {
			t.Errorf("%s is missing", id.Ref())
		}
		data, err := json.Marshal(seen.Antrea[id])
		if err != nil || strings.Contains(string(data), "Allow") && !strings.Contains(string(data), `"from":[{}]`) {
			t.Errorf("%s is not closed: %s, %v", id.Ref(), data, err)
		}
		if err := client.of(id).Delete(t.Context(), id.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	if seen := v.Sync(t); len(seen.Last.Problems) > 0 || len(seen.Antrea) > 0 {
		t.Errorf("problems of deleted objects: %v", seen.Last.Problems)
	}
}
