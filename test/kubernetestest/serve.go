package kubernetestest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// serveList answers with objects, as many as the request's limit. A later page is
// of the moment of its request: good enough for a client of a cluster that does not
// change meanwhile.
func (s *Server) serveList(w http.ResponseWriter, r *http.Request, t target) {
	if !s.wait(r) {
		return
	}
	query := r.URL.Query()
	s.mu.Lock()
	all, version, cut := s.objects.list(t.key, selected(query)), s.objects.version, s.cut
	s.mu.Unlock()
	if query.Get("resourceVersion") == "0" {
		all, version = nil, 1 // from a cache of any age
	}
	// A version with a limit is the very one that is asked for: etcd has it longer
	// than watches can begin there.
	if at, err := strconv.ParseUint(query.Get("resourceVersion"), 10, 64); err == nil && at > 0 && query.Get("limit") != "" && query.Get("resourceVersionMatch") == "" {
		all, version = slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool { return versionOf(o) > at }), at
	}
	from := 0
	if token := query.Get("continue"); token != "" {
		_, _ = fmt.Sscanf(token, "%d-%d", &version, &from)
	}
	limit, err := strconv.Atoi(query.Get("limit"))
	if err != nil || limit <= 0 {
		limit = len(all)
	}
	if cut > 0 && (from >= cut || min(from+limit, len(all)) > cut) {
		refuse(w, http.StatusInternalServerError, "InternalError", "cut off")
		return
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": t.gv.String(), "kind": t.kind + "List"}}
	list.SetResourceVersion(strconv.FormatUint(version, 10))
	from = min(from, len(all))
	to := min(from+limit, len(all))
	if to < len(all) {
		list.SetContinue(fmt.Sprintf("%d-%d", version, to))
	}
	form := formOf(r)
	if form.metadata {
		list.Object["apiVersion"], list.Object["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	for _, o := range all[from:to] {
		list.Items = append(list.Items, *form.part(o))
	}
	data, err := form.encode(list, t.gv.WithKind(t.kind+"List"))
	if err != nil {
		refuse(w, http.StatusInternalServerError, "InternalError", err.Error())
		return
	}
	w.Header().Set("Content-Type", form.mediaType)
	_, _ = w.Write(data)
}

// wait holds a list up while lists are to be held.
func (s *Server) wait(r *http.Request) bool {
	s.mu.Lock()
	held := s.held
	s.mu.Unlock()
	if held == nil {
		return true
	}
	select {
	case <-held:
		return true
	case <-r.Context().Done():
		return false
	}
}

// serveWatch sends changes until the client leaves or the watch is broken.
func (s *Server) serveWatch(w http.ResponseWriter, r *http.Request, t target) {
	query := r.URL.Query()
	s.mu.Lock()
	breaks, unstreamed := s.breaks, s.unstreamed
	s.mu.Unlock()
	streams := query.Get("sendInitialEvents") == "true"
	if streams && unstreamed {
		refuse(w, http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
		return
	}
	form := formOf(r)
	out, err := form.stream(w, t.gv)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "InternalError", err.Error())
		return
	}
	seen, err := strconv.ParseUint(query.Get("resourceVersion"), 10, 64)
	if streams || err != nil {
		if !s.wait(r) {
			return
		}
		if seen, err = s.sendAll(out, t, selected(query)); err != nil {
			return
		}
	}
	for {
		s.mu.Lock()
		compacted, entries, changed, over := s.objects.compacted, s.objects.since(t.key, seen), s.changed, s.breaks != breaks
		s.mu.Unlock()
		switch {
		case over:
			return
		case seen < compacted:
			_ = out.send("ERROR", statusObject(http.StatusGone, "Expired", fmt.Sprintf("too old resource version: %d (%d)", seen, compacted)))
			return
		}
		for _, e := range entries {
			if err := e.send(out, selected(query)); err != nil {
				return
			}
			seen = e.version
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// sendAll sends all objects and the bookmark that ends them.
func (s *Server) sendAll(out *stream, t target, selected func(object) bool) (uint64, error) {
	s.mu.Lock()
	all, version, cut := s.objects.list(t.key, selected), s.objects.version, s.cut
	s.mu.Unlock()
	for i, o := range all {
		if cut > 0 && i >= cut {
			return 0, errors.New("cut off")
		}
		if err := out.send("ADDED", o); err != nil {
			return 0, err
		}
	}
	bookmark := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": t.gv.String(), "kind": t.kind,
		"metadata": map[string]any{
			"resourceVersion": strconv.FormatUint(version, 10), "annotations": map[string]any{"k8s.io/initial-events-end": "true"},
		},
	}}
	return version, out.send("BOOKMARK", bookmark)
}

// send sends a change as a client with a selector sees it.
func (e entry) send(out *stream, selected func(object) bool) error {
	was := e.old != nil && selected(e.old)
	is := !e.deleted && selected(e.now)
	switch {
	case was && is:
		return out.send("MODIFIED", e.now)
	case is:
		return out.send("ADDED", e.now)
	case was:
		return out.send("DELETED", e.now)
	}
	return nil
}

// statusObject returns an error as the API has it.
func statusObject(code int, reason, message string) object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": int64(code), "reason": reason, "message": message,
	}}
}

func refuse(w http.ResponseWriter, code int, reason, message string) {
	writeJSON(w, code, statusObject(code, strings.ReplaceAll(reason, " ", ""), message).Object)
}

func writeJSON(w http.ResponseWriter, code int, value map[string]any) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(value)
}

// versionOf returns the version of an object.
func versionOf(o *unstructured.Unstructured) uint64 {
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return version
}
