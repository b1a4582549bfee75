// Package cli is `felixctl trace`. It reads the programmed state of the nodes asked and
// the Kubernetes objects of their agents, and has package trace follow the packet
// through both. With --live it sends a real packet through the kernel and the switch. It
// prints the results.
//
// It holds flags and words; packages trace and live do the work. It
// is tested by its text, and in the lab by test/e2e.
package cli
