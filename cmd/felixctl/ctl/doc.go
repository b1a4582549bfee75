// Package ctl is the commands of felixctl that talk to the agent of this node,
// through its control socket, or that tidy up where no agent runs. It holds
// flags and words; the agent does the work. It is tested against a served
// socket, and in the lab.
package ctl
