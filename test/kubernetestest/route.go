package kubernetestest

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/felixlike/felixlike/felixlike/antrea"
)

// resource is a resource that the server serves.
type resource struct {
	kind, plural string
	// key identifies the resource in this package: the plural, and where two groups have the
	// same, with the group.
	key        string
	gv         schema.GroupVersion
	namespaced bool
}

func resources() []resource {
	core, networking := schema.GroupVersion{Version: "v1"}, schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}
	all := []resource{
		{kind: "Node", plural: "nodes", gv: core, namespaced: false},
		{kind: "Namespace", plural: "namespaces", gv: core, namespaced: false},
		{kind: "Pod", plural: "pods", gv: core, namespaced: true},
		{kind: "NetworkPolicy", plural: "networkpolicies", gv: networking, namespaced: true},
		{kind: "ServiceCIDR", plural: "servicecidrs", gv: networking, namespaced: false},
		{kind: "ClusterNetworkPolicy", plural: "clusternetworkpolicies", gv: schema.GroupVersion{Group: "policy.networking.k8s.io", Version: "v1alpha2"}, namespaced: false},
		{kind: "Lease", plural: "leases", gv: schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1"}, namespaced: true},
		{kind: "Event", plural: "events", gv: schema.GroupVersion{Group: "events.k8s.io", Version: "v1"}, namespaced: true},
	}
	for i := range all {
		all[i].key = all[i].plural
	}
	for _, k := range antrea.Kinds() {
		all = append(all, resource{
			kind: k.String(), plural: k.Resource(), key: k.Resource() + "." + antrea.GroupName, gv: antrea.GroupVersion(), namespaced: k.Namespaced(),
		})
	}
	return all
}

// target is the object or list in the path of a request.
type target struct {
	resource
	namespace, name string
	// status tells that it is the status of the object.
	status bool
}

// right is what access rules call the target.
func (t target) right() string {
	if t.status {
		return t.plural + "/status"
	}
	return t.plural
}

// targetOf parses /api/v1/... and /apis/GROUP/VERSION/..., with namespaces/NS or
// without, and drops the name of a subresource: objects are stored in one
// piece.
func targetOf(urlPath string) (target, bool) {
	parts := strings.Split(strings.Trim(urlPath, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(parts) > 2 && parts[0] == "api":
		gv, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		gv, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return target{}, false
	}
	t := target{}
	if len(parts) > 2 && parts[0] == "namespaces" {
		t.namespace, parts = parts[1], parts[2:]
		if parts[0] == "status" || parts[0] == "finalize" {
			parts, t.namespace = []string{"namespaces", t.namespace}, ""
		}
	}
	for _, r := range resources() {
		if r.plural == parts[0] && r.gv == gv {
			t.resource = r
		}
	}
	if len(parts) > 1 {
		t.name = parts[1]
	}
	t.status = len(parts) > 2 && parts[2] == "status"
	return t, t.plural != ""
}

// verb returns the verb of a request, in the words of access rules.
func verb(r *http.Request, t target) string {
	switch r.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	switch {
	case r.URL.Query().Get("watch") != "":
		return "watch"
	case t.name == "":
		return "list"
	}
	return "get"
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t, known := targetOf(r.URL.Path)
	request := Request{Client: strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), Verb: verb(r, t), Group: t.gv.Group, Resource: t.right()}
	if !known {
		request.Verb, request.Resource = r.Method, r.URL.Path
	}
	status := s.note(request, t)
	if s.discover(w, r.URL.Path) {
		return
	}
	switch {
	case !known || status == http.StatusNotFound:
		refuse(w, http.StatusNotFound, "NotFound", "the server could not find the requested resource")
	case status != 0:
		refuse(w, status, http.StatusText(status), fmt.Sprintf("%s is %s", t.plural, http.StatusText(status)))
	case request.Verb == "list":
		s.serveList(w, r, t)
	case request.Verb == "watch":
		s.serveWatch(w, r, t)
	default:
		s.serveObject(w, r, t, request.Verb)
	}
}

// discover answers which resources a version of a group has, and reports whether that was
// the question. A version without any is not found.
func (s *Server) discover(w http.ResponseWriter, path string) bool {
	gv, err := schema.ParseGroupVersion(strings.TrimPrefix(path, "/apis/"))
	if err != nil || !strings.HasPrefix(path, "/apis/") {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[path]++
	var found []any
	for _, r := range resources() {
		if r.gv == gv && !s.hidden[r.key] {
			found = append(found, map[string]any{"name": r.plural, "kind": r.kind, "namespaced": r.namespaced})
		}
	}
	if len(found) == 0 {
		return false
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": gv.String(), "resources": found,
	})
	return true
}

// note keeps a request, and returns the status that it is to be refused with.
func (s *Server) note(r Request, t target) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := false
	for _, old := range s.requests {
		seen = seen || old == r
	}
	if !seen {
		s.requests = append(s.requests, r)
	}
	if r.Client == Admin {
		return 0
	}
	key := t.key
	if t.status {
		key += "/status"
	}
	if s.refused[key] != 0 {
		s.refusals[key]++
	}
	return s.refused[key]
}

// Admin is the client that is never refused.
const Admin = "admin"

// serveObject reads or writes one object.
func (s *Server) serveObject(w http.ResponseWriter, r *http.Request, t target, verb string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		refuse(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects.get(t.key, t.namespace, t.name)
	switch {
	case verb == "create" || verb == "update":
		o, err := parse(body)
		if err != nil {
			refuse(w, http.StatusBadRequest, "BadRequest", err.Error())
			return
		}
		if verb == "create" && s.objects.get(t.key, t.namespace, o.GetName()) != nil {
			refuse(w, http.StatusConflict, "AlreadyExists", o.GetName()+" already exists")
			return
		}
		if old != nil && o.GetResourceVersion() != "" && o.GetResourceVersion() != old.GetResourceVersion() {
			refuse(w, http.StatusConflict, "Conflict", o.GetName()+" has changed")
			return
		}
		o.SetNamespace(t.namespace)
		o.SetAPIVersion(t.gv.String())
		o.SetKind(t.kind)
		if old = s.objects.put(t.key, o); old.GetDeletionTimestamp() != nil {
			s.objects.begin(t.key, old)
		}
	case old == nil:
		refuse(w, http.StatusNotFound, "NotFound", t.name+" not found")
		return
	case verb == "delete":
		s.objects.begin(t.key, old)
	case verb == "patch":
		if now, err := parse(body); err == nil && now.GetUID() != "" && now.GetUID() != old.GetUID() {
			refuse(w, http.StatusConflict, "Conflict", t.name+" is another object")
			return
		}
		if old, err = patched(old, body); err != nil {
			refuse(w, http.StatusBadRequest, "BadRequest", err.Error())
			return
		}
		old = s.objects.put(t.key, old)
	}
	if verb != "get" {
		s.wakeLocked()
	}
	writeJSON(w, http.StatusOK, old.Object)
}

// patched merges a patch of JSON into an object. Of an apply patch it does what those
// need who apply conditions.
func patched(o object, patch []byte) (object, error) {
	p, err := parse(patch)
	if err != nil {
		return nil, err
	}
	o = o.DeepCopy()
	merge(o.Object, p.Object)
	return o, nil
}

func merge(into, from map[string]any) {
	for k, v := range from {
		inner, isMap := v.(map[string]any)
		outer, wasMap := into[k].(map[string]any)
		switch {
		case v == nil:
			delete(into, k)
		case isMap && wasMap:
			merge(outer, inner)
		case k == "conditions":
			into[k] = mergeConditions(into[k], v)
		default:
			into[k] = v
		}
	}
}

// mergeConditions replaces conditions by their type, and keeps those of other types.
func mergeConditions(have, changes any) []any {
	var all []any
	changed := map[any]bool{}
	list, _ := changes.([]any)
	for _, c := range list {
		if c, ok := c.(map[string]any); ok {
			changed[c["type"]] = true
		}
	}
	old, _ := have.([]any)
	for _, c := range old {
		if c, ok := c.(map[string]any); ok && !changed[c["type"]] {
			all = append(all, c)
		}
	}
	return append(all, list...)
}

func uid(version uint64) types.UID {
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", version))
}
