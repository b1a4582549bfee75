package servicelist

import "strings"

// Named returns the namespace/name of the Service that an end of a packet names: "service:namespace/name", "svc:namespace/name", or the
// Service's name in DNS, "name.namespace.svc" with or without the cluster's domain.
func Named(end string) (name string, found bool) {
	if kind, name, found := strings.Cut(end, ":"); found && (kind == "service" || kind == "svc") {
		return name, true
	}
	if strings.ContainsAny(end, "/:") { // a pod or a node whose name has dots
		return "", false
	}
	labels := strings.Split(strings.TrimSuffix(end, "."), ".")
	if len(labels) < 3 || labels[2] != "svc" || labels[0] == "" || labels[1] == "" {
		return "", false
	}
	return labels[1] + "/" + labels[0], true
}
