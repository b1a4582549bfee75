package chaos

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
)

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
