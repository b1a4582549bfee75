package compile

import (
	"strconv"

	"github.com/felixlike/felixlike/felixlike/policy/label"
)

// Selection selects pods: the pods that a selector matches in one namespace, or in the
// namespaces that another selector matches.
type Selection struct {
	// Namespace is used if Namespaces is nil.
	Namespace  string
	Namespaces *label.Selector
	Pods       *label.Selector
}

// String describes the selection.
func (s Selection) String() string {
	pods, where := "pods "+s.Pods.String(), "namespace "+s.Namespace
	if s.Pods.IsEverything() {
		pods = "all pods"
	}
	switch {
	case s.Namespaces == nil:
	case s.Namespaces.IsEverything():
		where = "all namespaces"
	default:
		where = "namespaces " + s.Namespaces.String()
	}
	return pods + " in " + where
}

// key returns a text that only equal selections share. Names of namespaces are quoted,
// because they are not validated here. Identifiers of groups are hashes of the key: it
// must not change between versions of the agent.
func (s Selection) key() string {
	namespaces := ""
	if s.Namespaces != nil {
		namespaces = s.Namespaces.String()
	}
	key := make([]byte, 0, 64)
	key = strconv.AppendBool(key, s.Namespaces == nil)
	key = append(key, ' ')
	key = strconv.AppendQuote(key, s.Namespace)
	key = append(append(key, ' '), namespaces...)
	key = append(append(key, ' '), s.Pods.String()...)
	return string(key)
}
