package ovsdb

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"

	flx "github.com/felixlike/felixlike/model"
)

// The keys of external_ids that record the pod behind an interface.
const (
	keyPodNamespace = "felixlike-pod-namespace"
	keyPodName      = "felixlike-pod-name"
	keyMAC          = "felixlike-mac"
	keyAddresses    = "felixlike-addresses"
	keySandbox      = "felixlike-sandbox"
	keyPodInterface = "felixlike-pod-interface"
	keyNetNS        = "felixlike-netns"
)

// AttachPort puts an interface that exists in the kernel on the bridge,
// records the pod that it belongs to, and returns its OpenFlow port. For an
// interface that is attached already it sends nothing. If another pod left the
// interface name behind, AttachPort takes the name over.
func (c *Client) AttachPort(ctx context.Context, a flx.Attachment) (uint32, error) {
	bridge, err := c.findBridge(ctx, c.cfg.Bridge)
	if err != nil {
		return 0, fmt.Errorf("attach %s of pod %s: %w", a.Interface, a.Pod, err)
	}
	if bridge == nil {
		return 0, fmt.Errorf("attach %s of pod %s: bridge %s does not exist", a.Interface, a.Pod, c.cfg.Bridge)
	}
	p := plan{c: c, ctx: ctx}
	port, err := p.port(interfaceRow{Name: a.Interface, ExternalIDs: record(a)}, bridge)
	if err == nil && port != "" {
		err = p.add(c.db.Where(bridge).Mutate(bridge, insertUUIDs(&bridge.Ports, []string{port})))
	}
	if err == nil {
		err = c.write(ctx, p.ops)
	}
	if err != nil {
		return 0, fmt.Errorf("attach %s of pod %s: bridge %s: %w", a.Interface, a.Pod, c.cfg.Bridge, err)
	}
	ofport, err := c.ofport(ctx, a.Interface)
	if err != nil {
		return 0, fmt.Errorf("attach pod %s: %w", a.Pod, err)
	}
	return ofport, nil
}

// ClearPort is DetachPort for a caller that is about to make an interface of that
// name. It returns when ovs-vswitchd has closed the previous interface, also if
// another client removed it.
func (c *Client) ClearPort(ctx context.Context, interfaceName string, pod flx.PodID) error {
	if err := c.DetachPort(ctx, interfaceName, pod); err != nil {
		return err
	}
	if err := c.caughtUp(ctx); err != nil {
		return fmt.Errorf("interface %s of pod %s: bridge %s: %w", interfaceName, pod, c.cfg.Bridge, err)
	}
	return nil
}

// DetachPort takes a pod's interface off the bridge. It does nothing if there
// is no such port, or if the port belongs to another pod by now: a late detach
// must not hurt the new owner of the name.
func (c *Client) DetachPort(ctx context.Context, interfaceName string, pod flx.PodID) error {
	if err := c.detach(ctx, interfaceName, pod); err != nil {
		return fmt.Errorf("detach %s of pod %s: bridge %s: %w", interfaceName, pod, c.cfg.Bridge, err)
	}
	return nil
}

func (c *Client) detach(ctx context.Context, interfaceName string, pod flx.PodID) error {
	row, err := c.findInterface(ctx, interfaceName)
	if err != nil || row == nil {
		return err
	}
	if owner := podOf(row); owner != pod {
		return nil
	}
	port, err := c.findPort(ctx, interfaceName)
	if err != nil || port == nil {
		return err
	}
	bridge, err := find(ctx, c, func(r *bridgeRow) bool { return slices.Contains(r.Ports, port.UUID) })
	if err != nil || bridge == nil {
		return err
	}
	// Ports and interfaces are not roots: unreferenced, they go by themselves.
	ops, err := c.db.Where(bridge).Mutate(bridge, model.Mutation{
		Field: &bridge.Ports, Mutator: ovsdb.MutateOperationDelete, Value: []string{port.UUID},
	})
	if err != nil {
		return err
	}
	if err := c.writeNoted(ctx, ops); err != nil {
		return err
	}
	return c.wait(ctx, func() (bool, error) {
		left, err := find(ctx, c, func(r *interfaceRow) bool { return r.UUID == row.UUID })
		return left == nil, err
	})
}

// Attachments returns the recorded attachments of pods, sorted by interface. It
// includes interfaces that ovs-vswitchd has not opened. If a record cannot be read
// in full, its attachment lacks the invalid fields, and the error names it.
func (c *Client) Attachments(ctx context.Context) ([]flx.Attachment, error) {
	rows, err := list[interfaceRow](ctx, c)
	if err != nil {
		return nil, fmt.Errorf("list attachments: %w", err)
	}
	var all []flx.Attachment
	var errs []error
	for _, row := range rows {
		if row.ExternalIDs[keyPodName] == "" {
			continue
		}
		a, err := recordOf(row)
		all, errs = append(all, *a), append(errs, err)
	}
	slices.SortFunc(all, func(a, b flx.Attachment) int { return strings.Compare(a.Interface, b.Interface) })
	return all, errors.Join(errs...)
}

// PortMACs returns the MAC addresses that the database sets for ports, by port name. Only
// the node's own ports have one.
func (c *Client) PortMACs(ctx context.Context) (map[string]string, error) {
	rows, err := list[interfaceRow](ctx, c)
	if err != nil {
		return nil, fmt.Errorf("list ports: %w", err)
	}
	all := map[string]string{}
	for _, row := range rows {
		if row.MAC != nil {
			all[row.Name] = strings.ToLower(*row.MAC)
		}
	}
	return all, nil
}

// Attachment returns the recorded attachment of an interface, or nil.
func (c *Client) Attachment(ctx context.Context, interfaceName string) (*flx.Attachment, error) {
	row, err := c.findInterface(ctx, interfaceName)
	if err != nil || row == nil || row.ExternalIDs[keyPodName] == "" {
		return nil, err
	}
	return recordOf(row)
}

// record returns the external_ids that record an attachment.
func record(a flx.Attachment) map[string]string {
	addrs := make([]string, len(a.Addresses))
	for i, addr := range a.Addresses {
		addrs[i] = addr.String()
	}
	return map[string]string{
		keyPodNamespace: a.Pod.Namespace,
		keyPodName:      a.Pod.Name,
		keyMAC:          a.MAC.String(),
		keyAddresses:    strings.Join(addrs, ","),
		keySandbox:      a.Sandbox,
		keyPodInterface: a.PodInterface,
		keyNetNS:        a.NetNS,
	}
}

func podOf(row *interfaceRow) flx.PodID {
	return flx.PodID{Namespace: row.ExternalIDs[keyPodNamespace], Name: row.ExternalIDs[keyPodName]}
}

// errNotAttached says that an interface is no attachment, or not yet.
var errNotAttached = errors.New("not attached")

// attachmentOf reads an attachment back from a row.
func attachmentOf(row *interfaceRow) (*flx.Attachment, error) {
	if row.ExternalIDs[keyPodName] == "" || row.OFPort == nil || *row.OFPort <= 0 {
		return nil, errNotAttached
	}
	return recordOf(row)
}

// recordOf reads an attachment from the external_ids of a row. The OpenFlow port is
// zero if ovs-vswitchd has not opened the interface.
func recordOf(row *interfaceRow) (*flx.Attachment, error) {
	a := &flx.Attachment{
		Pod: podOf(row), Interface: row.Name, Sandbox: row.ExternalIDs[keySandbox], PodInterface: row.ExternalIDs[keyPodInterface],
		NetNS: row.ExternalIDs[keyNetNS],
	}
	if row.OFPort != nil && *row.OFPort > 0 {
		a.OFPort = uint32(*row.OFPort)
	}
	mac, err := net.ParseMAC(row.ExternalIDs[keyMAC])
	if err != nil {
		return a, fmt.Errorf("interface %s of pod %s: %s: %w", row.Name, a.Pod, keyMAC, err)
	}
	a.MAC = mac
	for s := range strings.SplitSeq(row.ExternalIDs[keyAddresses], ",") {
		if s == "" {
			continue
		}
		addr, err := netip.ParseAddr(s)
		if err != nil {
			return a, fmt.Errorf("interface %s of pod %s: %s: %w", row.Name, a.Pod, keyAddresses, err)
		}
		a.Addresses = append(a.Addresses, addr)
	}
	slices.SortFunc(a.Addresses, netip.Addr.Compare)
	return a, nil
}
