package e2e

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/test/lab"
	"github.com/felixlike/felixlike/test/lab/traffic"
)

// whereabouts describes a connection that did
// not open, on the lab's pods and nodes: its sockets, the entries of kernel and switch, and
// the neighbours.
func whereabouts(l *lab.Lab, err error) string {
	e := new(traffic.Unopened)
	if !errors.As(err, &e) {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nfrom port %d", e.Port)
	state := l.State()
	for _, n := range state.Nodes {
		node := l.Node(n.Name)
		fmt.Fprintf(&b, "\n%s:\n%s", n.Name, inspect(node.Namespace(), fmt.Sprintf(
			`for f in ipv4 ipv6; do conntrack -L -f $f 2>/dev/null | grep -E '[sd]port=%[1]d\b'; done
			ovs-appctl -t '%[2]s'.*.ctl dpctl/dump-conntrack -m -s | grep -E '[sd]port=%[1]d\b'
			nft list tables; ip neighbour`, e.Port, filepath.Join(node.OVSDir(), "ovs-vswitchd"))))
	}
	for _, p := range state.Pods {
		id := model.PodID{Namespace: p.Namespace, Name: p.Name}
		fmt.Fprintf(&b, "\n%s:\n%s", id, inspect(l.Pod(id).Namespace(), fmt.Sprintf(
			`ss -tanoiH '( sport = :%[1]d or dport = :%[1]d )'; ip neighbour`, e.Port)))
	}
	return b.String()
}

// inspect returns the output of a script in a namespace, with its errors.
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
