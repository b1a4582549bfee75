package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/felixlike/felixlike/model"
)

// reasonTimeout bounds the wait for the loop's answer with the missing condition.
const reasonTimeout = time.Second

// LocalNode returns this node, once the datastore has it and one cycle has succeeded: before
// that, there is no bridge.
func (d *Driver) LocalNode(ctx context.Context) (*model.Node, error) {
	var node *model.Node
	err := d.queue.wait(ctx, func() (bool, error) {
		node = d.cluster.Model().Nodes[d.cluster.Node()]
		return d.cluster.InSync() && d.scheduler.programmed > 0, nil
	})
	if err != nil {
		return nil, d.because(err, func() string { return strings.Join(d.reporter.Readiness().Missing, "; ") })
	}
	return node, nil
}

// WaitPod waits until this attachment and the pod (with this UID unless it is empty) are
// known, and the pod's policy is in force. Otherwise the error names the missing condition.
func (d *Driver) WaitPod(ctx context.Context, want *model.Attachment, uid string) error {
	revision := uint64(0) // of the datastore when the wait began
	err := d.queue.wait(ctx, func() (bool, error) {
		if revision == 0 {
			revision = d.cluster.Observed()
		}
		if d.unseen(want, uid, revision) != "" {
			return false, nil
		}
		return d.reporter.PodsReady([]model.PodID{want.Pod})
	})
	if err != nil {
		return d.because(err, func() string { return cmp.Or(d.unseen(want, uid, revision), d.reporter.Unprogrammed(want.Pod)) })
	}
	return nil
}

// unseen returns the first input about a new pod that is still missing, or "". Policies count that the datastore had at the revision.
func (d *Driver) unseen(want *model.Attachment, uid string, revision uint64) string {
	waiting, large := d.scheduler.admission.Before(revision, want.Pod.Namespace)
	return d.cluster.Unseen(want, uid, waiting, large)
}

// because adds the missing condition to the error of a wait.
func (d *Driver) because(err error, reason func() string) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), reasonTimeout)
	defer cancel()
	var text string
	if d.queue.ask(ctx, func() { text = reason() }) != nil {
		return fmt.Errorf("%w: the agent's loop does not answer", err)
	}
	if text == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, text)
}

// Available returns why no pod can be added to this node now, or nil.
func (d *Driver) Available(ctx context.Context) error {
	var missing []string
	if err := d.queue.ask(ctx, func() { missing = d.reporter.Unavailable() }); err != nil {
		return loopError(err)
	}
	if len(missing) > 0 {
		return errors.New(strings.Join(missing, "; "))
	}
	return nil
}

// Added records how long an added pod has waited for its policy.
func (d *Driver) Added(waited time.Duration) { d.scheduler.metrics.PodAdded(waited) }
