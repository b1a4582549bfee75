// Package labs has the paths of labs' sockets, and asks a lab's supervisor for its
// status. felixctl uses it to find the agents of a lab. test/lab makes the labs;
// felixctl does not import it.
package labs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/felixlike/felixlike/felixlike/control"
)

// DefaultRoot is the folder of labs' records, logs and sockets.
const DefaultRoot = "/run/felixlike-lab"

// RootVariable is the variable of the environment that stands for DefaultRoot.
const RootVariable = "FELIXCTL_LAB_ROOT"

// Root is the folder of the labs unless a flag names one: that of the environment, else DefaultRoot.
func Root() string { return cmp.Or(os.Getenv(RootVariable), DefaultRoot) }

// DefaultName is the name of a lab for which none is given.
const DefaultName = "lab"

// MaxNodePart bounds a node's name in those of its namespace and its folder.
const MaxNodePart = 16

// nodesFolder holds the folders of nodes, in that of a lab.
const nodesFolder = "nodes"

// NodeFolder is the name of a node's folder: its name, shortened if it is long.
func NodeFolder(node string) string { return Bounded(node, MaxNodePart) }

// NodeDir is a node's folder in that of its lab.
func NodeDir(lab, node string) string { return filepath.Join(lab, nodesFolder, NodeFolder(node)) }

// Names returns the names of all labs below root (empty for the default), also of those
// that have crashed.
func Names(root string) ([]string, error) { return folders(cmp.Or(root, Root())) }

// Nodes returns the nodes of a lab by the names of their folders.
func Nodes(root, lab string) ([]string, error) {
	return folders(filepath.Join(cmp.Or(root, Root()), lab, nodesFolder))
}

// folders returns the names of the folders in a folder, sorted; none if that does not exist.
func folders(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list the labs: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// RunDir is the run directory of the agent, in the node's folder.
func RunDir(nodeDir string) string { return filepath.Join(nodeDir, "agent") }

// StateDir is the stateDir of the agent, in the node's folder.
func StateDir(nodeDir string) string { return filepath.Join(nodeDir, "state") }

// AgentLog is the log of the agent, in the node's folder.
func AgentLog(nodeDir string) string { return filepath.Join(nodeDir, "agent.log") }

// ControlSocket returns the path of the control socket of an agent, by the lab's
// folder and name (empty for the default), and the node's.
func ControlSocket(root, lab, node string) string {
	return filepath.Join(RunDir(NodeDir(filepath.Join(cmp.Or(root, Root()), lab), node)), control.SocketName)
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
