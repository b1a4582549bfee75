// Package ctl is the commands of felixctl that talk to the agent of this node,
// through its control socket, or that tidy up where no agent runs. It holds
// flags and words; what is done is the agent's. It is tested against a served
// socket, and in the lab.
package ctl
