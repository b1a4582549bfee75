package lab

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/wireguard"
)

// keyDir returns the directory with the private key that the lab makes for a node.
func (l *Lab) keyDir(node string) string { return filepath.Join(l.dir, "keys", node) }

// giveKeys makes a private key for each node, and writes the public one into its object unless it has one.
func (l *Lab) giveKeys(s *State) error {
	if l.config.Encryption != config.WireGuard {
		return nil
	}
	for _, n := range s.Nodes {
		key, err := wireguard.LoadKey(l.keyDir(n.Name))
		if err != nil {
			return fmt.Errorf("node %s: %w", n.Name, err)
		}
		if _, has := n.Annotations[model.PublicKeyAnnotation]; !has {
			if n.Annotations == nil {
				n.Annotations = map[string]string{}
			}
			n.Annotations[model.PublicKeyAnnotation] = key.Public().String()
		}
	}
	return nil
}

// copyKey gives the private key to a new node.
func (l *Lab) copyKey(n *Node) error {
	if l.config.Encryption != config.WireGuard {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(l.keyDir(n.Name()), wireguard.KeyFile))
	if err == nil {
		err = os.MkdirAll(filepath.Dir(filepath.Join(n.StateDir(), wireguard.KeyFile)), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(n.StateDir(), wireguard.KeyFile), text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("node %s: %w", n.Name(), err)
	}
	return nil
}
