package kubernetestest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
		var options metav1.DeleteOptions
		if err := json.Unmarshal(body, &options); len(body) > 0 && err != nil {
			refuse(w, http.StatusBadRequest, "BadRequest", err.Error())
			return
		}
		if p := options.Preconditions; p != nil && p.ResourceVersion != nil && *p.ResourceVersion != old.GetResourceVersion() {
			refuse(w, http.StatusConflict, "Conflict", t.name+" has changed")
			return
		}
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

// mergeConditions replaces conditions by their type, or removes them ("$patch": "delete"), and keeps those of other types.
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
	removed := func(c any) bool { m, ok := c.(map[string]any); return ok && m["$patch"] == "delete" }
	return append(all, slices.DeleteFunc(list, removed)...)
}
