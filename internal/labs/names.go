// Package labs has the paths of labs' sockets, and asks a lab's supervisor for its
// status. felixctl uses it to find the agents of a lab. test/lab makes the labs;
// felixctl does not import it.
package labs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"

	"github.com/felixlike/felixlike/felixlike/control"
)

// DefaultRoot is the folder of labs' records, logs and sockets.
const DefaultRoot = "/run/felixlike-lab"

// MaxNodePart bounds a node's name in those of its namespace and its folder.
const MaxNodePart = 16

// NodeDir is a node's folder in that of its lab.
func NodeDir(lab, node string) string { return filepath.Join(lab, "nodes", Bounded(node, MaxNodePart)) }

// RunDir is the run directory of the agent, in the node's folder.
func RunDir(nodeDir string) string { return filepath.Join(nodeDir, "agent") }

// AgentLog is the log of the agent, in the node's folder.
func AgentLog(nodeDir string) string { return filepath.Join(nodeDir, "agent.log") }

// ControlSocket returns the path of the control socket of an agent, by the lab's
// folder and name (empty for the default), and the node's.
func ControlSocket(root, lab, node string) string {
	return filepath.Join(RunDir(NodeDir(filepath.Join(cmp.Or(root, DefaultRoot), lab), node)), control.SocketName)
}

// Socket is the socket of a lab's supervisor.
func Socket(root, lab string) string { return filepath.Join(root, lab, "lab.sock") }

// Bounded shortens a name to max characters. A hash at the end stands for the cut part
// and for characters that do not fit a file name.
func Bounded(name string, max int) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, name)
	if clean == name && len(name) <= max {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	const hash = 8
	return clean[:min(len(clean), max-hash-1)] + "-" + hex.EncodeToString(sum[:])[:hash]
}
