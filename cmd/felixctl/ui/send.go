package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"time"
)

// sender is the Access to a lab, whose pods can be made to send. In a cluster nothing sends in the name of a pod.
type sender interface {
	// Sends reports whether Send can be used.
	Sends() bool
	// Send opens one connection, or sends one datagram, from one end of a trace to the other.
	Send(ctx context.Context, from, to, port, family string) (sent, error)
}

// sent is what became of a packet that was sent: the answer of felixctl lab probe.
type sent struct {
	// Tried is false if it could not be sent, for the Reason.
	Tried   bool          `json:"tried"`
	Through bool          `json:"through"`
	Reason  string        `json:"reason"`
	RTT     time.Duration `json:"rttNanoseconds"`
}

// Verdict is what the packet has met, in the word of a trace.
func (s sent) Verdict() string {
	if s.Through {
		return "allowed"
	}
	return "denied"
}

// Sends reports whether the pages show a lab.
func (l local) Sends() bool { return l.target.Lab != "" }

// Send has the lab send, by the program that has its commands.
func (l local) Send(ctx context.Context, from, to, port, family string) (s sent, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	program, err := l.lab()
	if err != nil {
		return s, err
	}
	root := l.target.Root
	args := []string{"lab", "probe", "--name", l.target.Lab, "--family", family, "-o", "json"}
	if root != "" {
		args = append(args, "--root", root)
	}
	// Nothing behind -- is taken for a flag.
	out, err := exec.CommandContext(ctx, program, append(args, "--", endOfLab(from), endOfLab(to), port)...).Output()
	exit := (*exec.ExitError)(nil)
	switch {
	case len(out) > 0:
		return s, Answer{Out: out}.decode(&s) // blocked is an exit code of its own
	case errors.As(err, &exit) && len(exit.Stderr) > 0:
		return s, fmt.Errorf("send: %s", bytes.TrimSpace(exit.Stderr))
	case err != nil:
		return s, fmt.Errorf("send: %w", err)
	}
	return s, errors.New("send: the lab gave no answer")
}

// endOfLab returns the end of a trace as the lab names it.
func endOfLab(end string) string {
	if _, err := netip.ParseAddr(end); err == nil {
		return "ip:" + end
	}
	return end
}
