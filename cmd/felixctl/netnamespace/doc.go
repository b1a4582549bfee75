// Package netnamespace is felixctl netnamespace: it lists the numbers of namespaces, joins namespaces, isolates them and makes
// them global, where isolation is namespaces.
//
// It reaches the cluster by kubectl, with the rights of its user, and asks the agents which connections a change denies.
// The objects that it writes come from felixlike/tenancy/change. Tests run it with kubectl against a real API server, and by
// cmd/felixctl/cluster with a kubectl of the test.
package netnamespace
