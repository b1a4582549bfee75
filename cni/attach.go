package cni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

// undoTimeout bounds what is done about a failed attach, whose own context may
// have ended.
const undoTimeout = 10 * time.Second

// Attach makes the pod's interface and puts it on the bridge. It must run on a
// thread that is in the node's network namespace. Attaching again changes
// nothing; if anything fails, what was made is removed.
func Attach(ctx context.Context, spec Spec) (*model.Attachment, error) {
	spec, err := spec.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("attach pod %s: %w", spec.Pod, err)
	}
	podNS, err := os.Open(spec.NetNS)
	if err != nil {
		return nil, fmt.Errorf("attach pod %s: network namespace: %w", spec.Pod, err)
	}
	defer podNS.Close()
	made, err := ensureVeth(spec, podNS)
	if err != nil {
		return nil, fmt.Errorf("attach pod %s: %w", spec.Pod, err)
	}
	attachment, err := finish(ctx, spec, podNS, made)
	if err == nil {
		return attachment, nil
	}
	err = fmt.Errorf("attach pod %s: %w", spec.Pod, err)
	if !made {
		return nil, err
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return nil, errors.Join(err, Detach(undo, spec))
}

// finish configures both sides and registers the host side.
func finish(ctx context.Context, spec Spec, podNS *os.File, made bool) (*model.Attachment, error) {
	if err := configureHost(spec); err != nil {
		return nil, err
	}
	if err := inNamespace(podNS, func() error { return configurePod(spec) }); err != nil {
		return nil, err
	}
	db, err := openDB(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if made {
		// A row of an earlier interface of this name would make ovs-vswitchd
		// keep the port that is gone.
		if err := db.DetachPort(ctx, spec.HostInterface, spec.Pod); err != nil {
			return nil, err
		}
	}
	ofport, err := db.AttachPort(ctx, *spec.attachment(0))
	if err != nil {
		return nil, err
	}
	return spec.attachment(ofport), nil
}

// Detach takes the pod's interface off the bridge and removes it. It must run
// on a thread that is in the node's network namespace. It may be repeated, and
// does nothing if another owner has attached the pod meanwhile; the pod's
// namespace may be gone.
func Detach(ctx context.Context, spec Spec) error {
	spec, err := spec.withDefaults()
	if err != nil {
		return fmt.Errorf("detach pod %s: %w", spec.Pod, err)
	}
	late, err := replaced(spec)
	if err != nil {
		return fmt.Errorf("detach pod %s: %w", spec.Pod, err)
	}
	if late {
		return nil
	}
	if err := errors.Join(unregister(ctx, spec), removeVeth(spec)); err != nil {
		return fmt.Errorf("detach pod %s: %w", spec.Pod, err)
	}
	return nil
}

func unregister(ctx context.Context, spec Spec) error {
	db, err := openDB(ctx, spec)
	if err != nil {
		return err
	}
	defer db.Close()
	return db.DetachPort(ctx, spec.HostInterface, spec.Pod)
}

func openDB(ctx context.Context, spec Spec) (*ovsdb.Client, error) {
	return ovsdb.Open(ctx, ovsdb.Config{Socket: spec.OVSDB, Bridge: spec.Bridge})
}
