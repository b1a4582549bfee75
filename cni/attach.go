package cni

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/felixlike/felixlike/internal/namespace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/ovsfwd/ovsdb"
)

// undoTimeout bounds the cleanup after a failed attach. The context of the attach
// itself may have ended.
const undoTimeout = 10 * time.Second

// Attacher attaches pods to the bridge of one database connection. Its methods
// may be called at the same time for different pods.
type Attacher struct {
	db     *ovsdb.Client
	names  naming
	claims claims
}

// NewAttacher returns an Attacher that uses a connection which knows the bridge.
func NewAttacher(db *ovsdb.Client) *Attacher { return &Attacher{db: db} }

// Attach opens a connection and calls Attacher.Attach.
func Attach(ctx context.Context, spec Spec) (*model.Attachment, error) {
	db, err := openDB(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("attach pod %s: %w", spec.Pod, err)
	}
	defer db.Close()
	return NewAttacher(db).Attach(ctx, spec)
}

// Attach makes the pod's interface and puts it on the bridge. It must run on a
// thread that is in the node's network namespace. Attaching again changes
// nothing. After a failure Attach removes what it made. If another pod has the interface
// name or the MAC address, Attach takes the next one.
func (a *Attacher) Attach(ctx context.Context, spec Spec) (*model.Attachment, error) {
	if err := spec.check(); err != nil {
		return nil, fmt.Errorf("attach pod %s: %w", spec.Pod, err)
	}
	podNS, err := openNamespace(spec.NetNS)
	if err != nil {
		return nil, fmt.Errorf("attach pod %s: network namespace: %w", spec.Pod, err)
	}
	defer podNS.Close()
	spec, release, err := a.claim(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("attach pod %s: %w", spec.Pod, err)
	}
	defer release()
	made, err := a.ensureVeth(ctx, spec, podNS)
	if err != nil {
		return nil, fmt.Errorf("attach pod %s: %w", spec.Pod, err)
	}
	attachment, err := a.finish(ctx, spec, podNS)
	if err == nil {
		return attachment, nil
	}
	err = fmt.Errorf("attach pod %s: %w", spec.Pod, err)
	if !made {
		return nil, err
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	return nil, errors.Join(err, a.detach(undo, spec))
}

// ensureVeth makes the veth pair unless this owner has made it already. It replaces the pair
// of another owner (an earlier sandbox of this pod). It reports whether it made one.
func (a *Attacher) ensureVeth(ctx context.Context, spec Spec, podNS *os.File) (made bool, err error) {
	have, err := hasVeth(spec, podNS)
	if err != nil || have {
		return false, err
	}
	if err := a.db.ClearPort(ctx, spec.HostInterface, spec.Pod); err != nil {
		return false, err
	}
	return true, makeVeth(spec, podNS)
}

// finish configures both sides and registers the host side.
func (a *Attacher) finish(ctx context.Context, spec Spec, podNS *os.File) (*model.Attachment, error) {
	if err := configureHost(spec); err != nil {
		return nil, err
	}
	userspace, err := a.db.Userspace(ctx)
	if err != nil {
		return nil, err
	}
	gateway, err := a.gatewayMAC(ctx)
	if err != nil {
		return nil, err
	}
	if err := namespace.In(int(podNS.Fd()), func() error { return configurePod(spec, gateway, userspace) }); err != nil {
		return nil, err
	}
	ofport, err := a.db.AttachPort(ctx, *spec.attachment(0))
	if err != nil {
		return nil, err
	}
	return spec.attachment(ofport), nil
}

// gatewayMAC returns the MAC address of the bridge's gateway port. The database keeps it, and the agent makes it of the node's name: it
// stays the same for as long as the node has pods.
func (a *Attacher) gatewayMAC(ctx context.Context) (net.HardwareAddr, error) {
	ports, err := a.db.PortMACs(ctx)
	if err != nil {
		return nil, err
	}
	mac, err := net.ParseMAC(ports[model.GatewayPort])
	if err != nil {
		return nil, fmt.Errorf("MAC address of the gateway port %s: %w", model.GatewayPort, err)
	}
	return mac, nil
}

// Detach opens a connection and calls Attacher.Detach.
func Detach(ctx context.Context, spec Spec) error {
	db, err := openDB(ctx, spec)
	if err != nil {
		return fmt.Errorf("detach pod %s: %w", spec.Pod, err)
	}
	defer db.Close()
	return NewAttacher(db).Detach(ctx, spec)
}

// Detach takes the pod's interface off the bridge and removes it. It must run
// on a thread that is in the node's network namespace. It may be repeated, and
// does nothing if another owner has attached the pod meanwhile; the pod's
// namespace may be gone.
func (a *Attacher) Detach(ctx context.Context, spec Spec) error {
	if err := spec.check(); err != nil {
		return fmt.Errorf("detach pod %s: %w", spec.Pod, err)
	}
	names, err := a.interfacesOf(ctx, spec)
	errs := []error{err}
	for _, name := range names {
		// take fails if another pod has claimed the name: then the interface is that pod's.
		if a.claims.take(name, spec.Pod) {
			spec.HostInterface = name
			errs = append(errs, a.detach(ctx, spec))
			a.claims.release(name, nil)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("detach pod %s: %w", spec.Pod, err)
	}
	return nil
}

// detach removes the one interface, unless another owner has it. A failed detach keeps the interface:
// a port without one is taken for a pod that has lost it.
func (a *Attacher) detach(ctx context.Context, spec Spec) error {
	late, err := a.replaced(ctx, spec)
	if err != nil || late {
		return err
	}
	if err := a.db.DetachPort(ctx, spec.HostInterface, spec.Pod); err != nil {
		return err
	}
	return removeVeth(spec.HostInterface)
}

// replaced reports whether another owner has the interface by now. It reads the alias
// of the interface or, if the interface is gone, the record in OVSDB.
func (a *Attacher) replaced(ctx context.Context, spec Spec) (bool, error) {
	alias, err := aliasOf(spec.HostInterface)
	if err != nil {
		return false, err
	}
	if alias != "" {
		return alias != spec.alias(), nil
	}
	recorded, err := a.db.Attachment(ctx, spec.HostInterface)
	if recorded == nil {
		return false, err
	}
	// Other unreadable parts of the record are no reason to keep it.
	return recorded.Pod != spec.Pod || recorded.Sandbox != "" && (recorded.Sandbox != spec.Owner || recorded.PodInterface != spec.Interface), nil
}

func openDB(ctx context.Context, spec Spec) (*ovsdb.Client, error) {
	return ovsdb.Open(ctx, ovsdb.Config{Socket: spec.OVSDB, Bridge: spec.Bridge})
}
