// Package workload makes the cluster that the benchmark measures: Kubernetes
// objects that come to exactly the model that a profile asks for, the changes
// that are made to it, and the attachments of the pods that run here. The same
// profile gives the same objects, always.
//
// It does no I/O and measures nothing. Tests feed its objects to
// the policy engine and count the updates.
package workload
