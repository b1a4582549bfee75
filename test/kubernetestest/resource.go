package kubernetestest

import (
	"fmt"
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
		{kind: "Service", plural: "services", gv: core, namespaced: true},
		{kind: "EndpointSlice", plural: "endpointslices", gv: schema.GroupVersion{Group: "discovery.k8s.io", Version: "v1"}, namespaced: true},
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
			kind: k.String(), plural: k.Resource(), key: k.Resource() + "." + k.GroupVersion().Group, gv: k.GroupVersion(), namespaced: k.Namespaced(),
		})
	}
	return all
}

// target is the object or list in the path of a request.
type target struct {
	resource
	namespace, name string
	// status reports that it is the status of the object.
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

func uid(version uint64) types.UID {
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", version))
}
