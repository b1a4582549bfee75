// Package worker is the process that is measured: a real driver with a real
// backend, in a network namespace of its own, fed with the objects and
// attachments of a workload instead of a datastore and a switch. One process
// does one Task and writes what it measured as lines of JSON.
//
// Datastore and switch are the only parts that are not the agent's own: what
// is measured is objects -> model -> managers -> kernel. It is tested by
// package bench, which runs it as a process.
package worker
