// Package kubernetestest tests the datastore kubernetes. Suite has the requirements for any
// API server. Server is an API server that runs inside a test, and can simulate faults: it
// goes away, breaks watches, forgets versions, refuses
// requests, or has features that no API server of today has.
//
// It may be imported by tests only.
package kubernetestest
