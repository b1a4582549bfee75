package kubernetes_test

import (
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/felixlike/datastore"
	"github.com/felixlike/felixlike/felixlike/datastore/kubernetes"
	"github.com/felixlike/felixlike/felixlike/egress/status"
	"github.com/felixlike/felixlike/felixlike/netnamespaces"
	"github.com/felixlike/felixlike/felixlike/policystatus"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/kubernetestest"
)

// known are the objects of a test.
type known struct {
	uids  map[model.ObjectRef]types.UID
	names []string
}

func (k known) UID(r model.ObjectRef) (types.UID, bool) { uid, ok := k.uids[r]; return uid, ok }
func (k known) Nodes() []string                         { return k.names }

func refOf(kind, namespace, name string) model.ObjectRef {
	return model.ObjectRef{Kind: kind, Namespace: namespace, Name: name}
}

// events returns all Events, sorted by name.
func (f *fixture) events(t *testing.T) []eventsv1.Event {
	t.Helper()
	list, err := f.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func TestRecorder(t *testing.T) {
	f := newFixture(t)
	policy, pod := refOf("NetworkPolicy", "x", "p"), refOf("Pod", "x", "a")
	objects := known{uids: map[model.ObjectRef]types.UID{policy: "u1", pod: "u2"}, names: []string{"n1", "n2", "n3", "n4", "n5"}}
	var recorders []*kubernetes.Recorder
	for _, n := range objects.names {
		recorders = append(recorders, kubernetes.NewRecorder(n, objects, f.EventsV1().RESTClient()))
	}
	now := time.Now()
	look := func(after time.Duration, notices ...datastore.Notice) []eventsv1.Event {
		t.Helper()
		now = now.Add(after)
		for _, recorder := range recorders {
			recorder.Look(t.Context(), notices, now)
		}
		return f.events(t)
	}
	closed := datastore.Notice{
		Problem: model.Problem{Object: policy, Field: "spec.priority", Reason: "unknown field"}, Kind: "NotUnderstood", Known: datastore.KnownToAll,
	}
	stranger := closed
	stranger.Object.Name = "q"
	if all := look(0, closed, stranger); len(all) > 0 {
		t.Fatalf("events of a problem that may pass: %v", all)
	}
	look(5 * time.Second)
	if all := look(5*time.Second, closed); len(all) > 0 {
		t.Fatalf("events of a problem that has passed: %v", all)
	}
	all := look(5*time.Second, closed, stranger)
	if len(all) != 1 {
		t.Fatalf("%d events", len(all))
	}
	e := all[0]
	if e.Namespace != "x" || e.Type != "Warning" || e.Reason != "NotUnderstood" || e.Note != "spec.priority: unknown field" || e.Regarding.UID != "u1" ||
		e.Regarding.Kind != "NetworkPolicy" || e.Regarding.APIVersion != "networking.k8s.io/v1" || e.ReportingController == "" || e.EventTime.IsZero() || e.Related != nil {
		t.Errorf("event: %+v", e)
	}
	writes := f.version(t)
	for range 20 { // the other nodes find the Event
		look(5*time.Second, closed)
	}
	if got := f.version(t); got != writes {
		t.Errorf("%d writes while nothing changes", got-writes)
	}
	all = look(31*time.Minute, closed)
	if len(all) != 1 || all[0].Series == nil || all[0].Series.Count != 2 {
		t.Errorf("half an hour later: %+v", all)
	}

	// Each node records a problem that only it knows.
	dropped := datastore.Notice{Problem: model.Problem{Object: pod, Reason: "the pod's packets are dropped"}, Kind: "TrafficDropped"}
	look(time.Second, dropped)
	all = look(5*time.Second, dropped)
	if len(all) != 1+len(recorders) || !slices.ContainsFunc(all, func(e eventsv1.Event) bool { return e.Related != nil && e.Related.Name == "n3" }) {
		t.Errorf("%d events", len(all))
	}
}

// version returns the API server's resource version: it counts the writes.
func (f *fixture) version(t *testing.T) int {
	t.Helper()
	list, err := f.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if _, err := fmt.Sscan(list.ResourceVersion, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRecordAgain: a refused Event is written later, and many problems at once are no flood of Events.
func TestRecordAgain(t *testing.T) {
	f := newFixture(t)
	objects := known{uids: map[model.ObjectRef]types.UID{}, names: []string{"n1"}}
	var notices []datastore.Notice
	for i := range 100 {
		p := refOf("NetworkPolicy", "x", fmt.Sprint("p", i))
		objects.uids[p] = types.UID(fmt.Sprint("u", i))
		notices = append(notices, datastore.Notice{Problem: model.Problem{Object: p, Reason: "bad"}, Kind: "NotUnderstood", Known: datastore.KnownToAll})
	}
	recorder := kubernetes.NewRecorder("n1", objects, f.clientOf(t, "agent").EventsV1().RESTClient())
	now := time.Now()
	recorder.Look(t.Context(), notices, now)
	counts := []int{}
	for i := range 5 {
		f.Refuse(map[bool]int{true: http.StatusServiceUnavailable}[i == 1])
		now = now.Add(5 * time.Second)
		recorder.Look(t.Context(), notices, now)
		counts = append(counts, len(f.events(t)))
	}
	if !reflect.DeepEqual(counts, []int{25, 25, 30, 35, 40}) {
		t.Errorf("events: %v", counts)
	}
}

// TestEventsAboutAntreaObjects: an Event names kind and group as the API does, and its UID is that
// of the object, also if another group has a kind and an object of these names.
func TestEventsAboutAntreaObjects(t *testing.T) {
	f := newFixture(t)
	client := newAntreaClient(t, f.Config(kubernetestest.Admin))
	f.clusterPolicy(t, "p")
	for _, id := range antreaIDs() {
		client.put(t, id, antreaText(id.Kind))
	}
	v := f.open(t)
	v.Sync(t)
	recorder := kubernetes.RecorderOf(v.Source(), f.EventsV1().RESTClient())
	for _, id := range antreaIDs() {
		o, err := client.of(id).Get(t.Context(), id.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		problem := datastore.Notice{Problem: model.Problem{Object: id.Ref(), Field: "spec", Reason: "bad"}, Kind: "NotUnderstood"}
		for i := range 2 {
			recorder.Look(t.Context(), []datastore.Notice{problem}, time.Now().Add(time.Duration(i)*time.Hour))
		}
		all := f.events(t)
		at := slices.IndexFunc(all, func(e eventsv1.Event) bool { return e.Regarding.UID == o.GetUID() })
		if at < 0 {
			t.Errorf("no Event about %s", id.Ref())
			continue
		}
		r := all[at].Regarding
		if r.APIVersion != id.Kind.GroupVersion().String() || r.Kind != id.Kind.String() || r.Namespace != id.Namespace || r.Name != id.Name {
			t.Errorf("%s: the Event is about %+v", id.Ref(), r)
		}
	}
}

// TestRights: the source sends the requests that Rights lists, no others, and needs all of them; the deployed
// ClusterRole has the same.
func TestRights(t *testing.T) {
	f := newFixture(t)
	f.pods(t, "a")
	f.StreamLists(false)
	v := f.openServices(t)
	v.Sync(t)
	problem := datastore.Notice{Problem: model.Problem{Object: refOf("ServiceCIDR", "", "kubernetes"), Reason: "bad"}, Kind: "NotUnderstood"}
	uids := known{uids: map[model.ObjectRef]types.UID{problem.Object: "u"}}
	client := f.clientOf(t, "agent")
	recorder := kubernetes.NewRecorder("n1", uids, client.EventsV1().RESTClient())
	for i := range 3 {
		recorder.Look(t.Context(), []datastore.Notice{problem}, time.Now().Add(time.Duration(i)*time.Hour))
	}
	if err := v.Source().RemoveNodeCondition(t.Context(), "Test"); !apierrors.IsNotFound(err) {
		t.Errorf("a condition of a node that is not there: %v", err)
	}
	asked := map[string]bool{}
	for _, r := range f.Requests() {
		if r.Client == "agent" {
			asked[r.Verb+" "+r.Group+"/"+r.Resource] = true
		}
	}
	granted := rights(slices.Concat(kubernetes.Rights(), kubernetes.NetNamespaceRights()))
	if !reflect.DeepEqual(asked, granted) {
		t.Errorf("asked for %v, granted are %v", asked, granted)
	}
	data, err := os.ReadFile("../../../deploy/base/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	isolation, err := os.ReadFile("../../../deploy/components/isolation/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(string(isolation), "\n---\n")
	var more rbacv1.ClusterRole
	if err := yaml.Unmarshal([]byte(head), &more); err != nil || !reflect.DeepEqual(more.Rules, slices.Concat(kubernetes.NetNamespaceRights(), netnamespaces.Rights())) {
		t.Errorf("deployed with isolation are %v, %v", more.Rules, err)
	}
	for document := range strings.SplitSeq(string(data), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		wanted := rights(slices.Concat(kubernetes.Rights(), policystatus.Rights(), status.Rights()))
		if deployed := rights(role.Rules); role.Kind == "ClusterRole" && !reflect.DeepEqual(deployed, wanted) {
			t.Errorf("deployed are %v, wanted %v", deployed, wanted)
		}
	}
}

func rights(rules []rbacv1.PolicyRule) map[string]bool {
	all := map[string]bool{}
	for _, r := range rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					all[verb+" "+group+"/"+resource] = true
				}
			}
		}
	}
	return all
}
