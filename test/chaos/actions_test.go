package chaos

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
)

// manifest is the file with the policy of x/mute. No policy of churn selects that pod.
func (c *cluster) manifest() string {
	return filepath.Join(c.lab.Manifests(), "networkpolicy_x_mute.yaml")
}

// hideManifest replaces the file by a link to itself, so that it cannot be read.
func (c *cluster) hideManifest() error {
	temp := filepath.Join(c.lab.Manifests(), ".loop")
	if err := os.Symlink(filepath.Base(c.manifest()), temp); err != nil {
		return err
	}
	return os.Rename(temp, c.manifest())
}

// restoreManifest writes the file as it was.
func (c *cluster) restoreManifest() error { return replace(c.manifest(), c.saved) }

// remake deletes a pod and makes it anew, as a runtime does.
func (c *cluster) remake(pod string) error {
	s := c.lab.State()
	without := s
	without.Pods = nil
	for _, p := range s.Pods {
		if p.Name != pod {
			without.Pods = append(without.Pods, p)
		}
	}
	if err := c.lab.SetState(c.t.Context(), without); err != nil {
		return err
	}
	return c.lab.SetState(c.t.Context(), s)
}

// startSecond starts another agent on the node, with directories of its own.
func (c *cluster) startSecond() error {
	dir, err := os.MkdirTemp(filepath.Dir(c.node.LogFile()), "second")
	if err != nil {
		return err
	}
	c.second, err = c.node.StartSecondAgent(dir)
	return err
}

// endSecond fails if the second agent was not refused.
func (c *cluster) endSecond() error {
	if c.second == nil {
		return nil
	}
	refused := within(c.t.Context(), wait, func() bool { return c.second.PID() == 0 })
	if !refused {
		return errors.Join(errors.New("the second agent was not refused"), c.second.Kill())
	}
	return nil
}

// changeBackend changes the backend of the node, and waits until it is in force.
func (c *cluster) changeBackend(ctx context.Context, to string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return control.NewClient(c.node.ControlSocket()).SetBackend(ctx, to)
}
