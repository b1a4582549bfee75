package control

import (
	"fmt"
	"strings"

	"github.com/felixlike/felixlike/model"
)

// Paths of the API.
const (
	statusPath     = "/" + Version + "/status"
	syncPath       = "/" + Version + "/sync"
	programmedPath = "/" + Version + "/programmed"
	backendPath    = "/" + Version + "/backend"
)

// syncRequest is the body of a POST to syncPath.
type syncRequest struct {
	// Pods are "namespace/name".
	Pods []string `json:"pods,omitempty"`
}

// backendRequest is the body of a POST to backendPath, and of its answer.
type backendRequest struct {
	Backend string `json:"backend"`
}

// revisionReply is the answer of syncPath and programmedPath.
type revisionReply struct {
	Revision uint64 `json:"programmedRevision"`
}

// ParsePod parses "namespace/name".
func ParsePod(s string) (model.PodID, error) {
	namespace, name, found := strings.Cut(s, "/")
	if !found || namespace == "" || name == "" || strings.Contains(name, "/") {
		return model.PodID{}, fmt.Errorf("pod %q: must be namespace/name", s)
	}
	return model.PodID{Namespace: namespace, Name: name}, nil
}
