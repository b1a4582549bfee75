// Package worker is the measured process: a real driver with a real
// backend, in a new network namespace. It gets the objects and
// attachments of a workload in place of a datastore and a switch. One process
// does one Task and writes its measurements as lines of JSON.
//
// Datastore and switch are the only parts that are not the agent's own: the
// measurement covers objects -> model -> managers -> kernel. It is tested by
// package bench, which runs it as a process.
package worker
