package kubernetes

import "k8s.io/client-go/dynamic"

// Dynamic returns the source's client for any kind, for packages that write.
func (s *Source) Dynamic() dynamic.Interface { return s.clients.dynamic }

// Nodes returns how many nodes there are.
func (s *Source) Nodes() int {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return len(s.state.stores[kindNode].records)
}

// HasClusterPolicies reports whether there is a ClusterNetworkPolicy.
func (s *Source) HasClusterPolicies() bool {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return len(s.state.stores[kindClusterPolicy].records) > 0
}

// HasNetNamespaces reports whether there is a NetNamespace.
func (s *Source) HasNetNamespaces() bool {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return len(s.state.stores[kindNetNamespace].records) > 0
}

// ServesNetNamespaces reports whether the API server has NetNamespaces.
func (s *Source) ServesNetNamespaces() bool { return !s.isAbsent(kindNetNamespace) }

// HasNamespace reports whether there is a namespace.
func (s *Source) HasNamespace(name string) bool {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	_, found := s.state.stores[kindNamespace].records[key{name: name}]
	return found
}
