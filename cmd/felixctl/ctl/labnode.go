package ctl

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/felixlike/felixlike/internal/labs"
)

// Variables of the environment that stand for the flags --socket and --lab.
const (
	socketVariable = "FELIXCTL_SOCKET"
	labVariable    = "FELIXCTL_LAB"
)

// labNode is the flag --lab. It sets the socket to that of a lab's agent.
type labNode struct {
	text   string
	socket *string
}

// String implements pflag.Value.
func (l *labNode) String() string { return l.text }

// Type implements pflag.Value.
func (l *labNode) Type() string { return "NAME/NODE" }

// Set implements pflag.Value.
func (l *labNode) Set(text string) error {
	name, node, _ := strings.Cut(text, "/")
	if name == "" || node == "" || strings.Contains(node, "/") {
		return errors.New("must be NAME/NODE: felixctl lab list has the labs, and felixctl lab status --name NAME the nodes")
	}
	l.text, *l.socket = text, labs.ControlSocket("", name, node)
	return nil
}

// fromEnvironment sets the socket as the environment says.
func (l *labNode) fromEnvironment() error {
	if socket := os.Getenv(socketVariable); socket != "" {
		*l.socket = socket
	}
	lab := os.Getenv(labVariable)
	if lab == "" {
		return nil
	}
	if os.Getenv(socketVariable) != "" {
		return fmt.Errorf("%s and %s are both set", socketVariable, labVariable)
	}
	if err := l.Set(lab); err != nil {
		return fmt.Errorf("%s=%q: %w", labVariable, lab, err)
	}
	return nil
}
