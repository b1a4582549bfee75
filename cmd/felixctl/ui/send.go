package ui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// sender is the Access to a lab, whose pods can be made to send. In a cluster nothing sends in the name of a pod.
type sender interface {
	// Sends reports whether Send can be used.
	Sends() bool
	// Send opens one connection, or sends one datagram, from one pod to another one.
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

// Verdict is the result as a trace names it: allowed or denied.
func (s sent) Verdict() string {
	if s.Through {
		return "allowed"
	}
	return "denied"
}

// Sends reports whether the pages show a lab.
func (l local) Sends() bool { return l.target.Lab != "" }

// Send runs felixlab lab probe.
func (l local) Send(ctx context.Context, from, to, port, family string) (s sent, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	program, err := l.lab()
	if err != nil {
		return s, err
	}
	args := []string{"lab", "probe", "--name", l.target.Lab, "--family", family, "-o", "json"}
	if root := l.target.Root; root != "" {
		args = append(args, "--root", root)
	}
	// No argument after -- is read as a flag.
	cmd := exec.CommandContext(ctx, program, append(args, "--", from, to, port)...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	exit := (*exec.ExitError)(nil)
	switch {
	case len(out) > 0:
		return s, Answer{Out: out}.decode(&s) // blocked is an exit code of its own
	case errors.As(err, &exit) && len(exit.Stderr) > 0:
		return s, errors.New(string(bytes.TrimSpace(exit.Stderr)))
	case err != nil:
		return s, err
	}
	return s, errors.New("felixlab gave no answer")
}

// isPod reports whether an end of a trace is namespace/pod. For an address, the lab would make a host that has it; on a node, a server that listens.
func isPod(end string) bool {
	return strings.Count(end, "/") == 1 && !strings.Contains(end, ":")
}

// send sends the packet of a question. One is sent at a time.
func (s *server) send(ctx context.Context, w *why) error {
	lab, ok := s.access.(sender)
	switch {
	case !ok || !lab.Sends():
		return usage{errors.New("only a lab sends packets")}
	case !isPod(w.From) || !isPod(w.To):
		return usage{fmt.Errorf("from %q to %q: the lab sends between pods, as namespace/pod", w.From, w.To)}
	case !s.sending.TryLock():
		return usage{errors.New("another packet is being sent")}
	}
	defer s.sending.Unlock()
	result, err := lab.Send(ctx, w.From, w.To, w.Port, w.Family)
	if err != nil {
		result = sent{Reason: err.Error()}
	}
	w.Sent = &result
	return nil
}
