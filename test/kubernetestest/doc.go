// Package kubernetestest tests the datastore kubernetes. Suite is what any API
// server must get right; Server is an API server that runs inside a test, and
// can be told to fail: it goes away, breaks watches, forgets versions, refuses
// requests, or has what no API server of today has.
//
// It may be imported by tests only.
package kubernetestest
