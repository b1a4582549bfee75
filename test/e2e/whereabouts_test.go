package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/lab"
	"github.com/felixlike/felixlike/lab/namespace"
	"github.com/felixlike/felixlike/model"
)

// unopened is a connection that did not open.
type unopened struct {
	error
	// port is the one it was to be opened from.
	port int
}

func (e *unopened) Unwrap() error { return e.error }

// unopenedBy returns the error of a socket that could not connect.
func unopenedBy(fd int, err error) error {
	e := &unopened{error: err}
	switch local, _ := unix.Getsockname(fd); local := local.(type) {
	case *unix.SockaddrInet4:
		e.port = local.Port
	case *unix.SockaddrInet6:
		e.port = local.Port
	}
	return e
}

// whereabouts tells what the pods and nodes of a lab know of a connection that did
// not open: its sockets, the entries of kernel and switch, and the neighbours.
func whereabouts(l *lab.Lab, err error) string {
	e := new(unopened)
	if !errors.As(err, &e) {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nfrom port %d", e.port)
	state := l.State()
	for _, n := range state.Nodes {
		node := l.Node(n.Name)
		fmt.Fprintf(&b, "\n%s:\n%s", n.Name, inspect(node.Namespace(), fmt.Sprintf(
			`for f in ipv4 ipv6; do conntrack -L -f $f 2>/dev/null | grep -E '[sd]port=%[1]d\b'; done
			ovs-appctl -t '%[2]s'.*.ctl dpctl/dump-conntrack -m -s | grep -E '[sd]port=%[1]d\b'
			nft list tables; ip neighbour`, e.port, filepath.Join(node.OVSDir(), "ovs-vswitchd"))))
	}
	for _, p := range state.Pods {
		id := model.PodID{Namespace: p.Namespace, Name: p.Name}
		fmt.Fprintf(&b, "\n%s:\n%s", id, inspect(l.Pod(id).Namespace(), fmt.Sprintf(
			`ss -tanoiH '( sport = :%[1]d or dport = :%[1]d )'; ip neighbour`, e.port)))
	}
	return b.String()
}

// inspect returns what a script prints in a namespace, its errors included.
func inspect(ns *namespace.Namespace, script string) string {
	var out []byte
	if err := ns.Do(func() error {
		// A grep that finds nothing fails.
		out, _ = exec.Command("sh", "-c", script).CombinedOutput()
		return nil
	}); err != nil {
		return err.Error()
	}
	return string(out)
}
