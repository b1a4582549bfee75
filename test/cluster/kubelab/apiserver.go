package kubelab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// StopAPIServer kills the API server and returns a function that starts it again.
func (c *Cluster) StopAPIServer(ctx context.Context) (start func(context.Context) error, err error) {
	record := filepath.Join(c.kit.work, "run", "pid", "kube-apiserver")
	text, err := os.ReadFile(record)
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	var args []string
	for arg := range bytes.SplitSeq(bytes.TrimSuffix(line, []byte{0}), []byte{0}) {
		args = append(args, string(arg))
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return nil, fmt.Errorf("end the API server: %w", err)
	}
	return func(ctx context.Context) error { return c.startAPIServer(ctx, record, args) }, nil
}

// startAPIServer starts the API server with the arguments it had, where down.sh
// finds it, and waits until it is ready.
func (c *Cluster) startAPIServer(ctx context.Context, record string, args []string) error {
	log, err := os.OpenFile(c.Log("kube-apiserver"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer log.Close()
	// It has to outlive this context: down.sh ends it.
	cmd := exec.Command("ip", append([]string{"netns", "exec", ControlPlane}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the API server: %w", err)
	}
	if err := os.WriteFile(record, []byte(strconv.Itoa(cmd.Process.Pid)), 0o600); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		if _, err := c.Kubectl(ctx, "get", "--raw", "/readyz"); err == nil {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the API server ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("wait for the API server: %w", ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
