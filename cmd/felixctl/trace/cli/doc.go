// Package cli is `felixctl trace`: it reads what the nodes asked have programmed and
// the Kubernetes objects that their agents go by, has package trace follow the packet
// through both, and with --live a real packet through the kernel and the switch, and
// prints how it went.
//
// It holds flags and words; what is found is package trace's and package live's. It
// is tested by its text, and in the lab by test/e2e.
package cli
