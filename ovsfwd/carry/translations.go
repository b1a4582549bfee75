package carry

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// Translations say which entries give their packets a source that they must not have any more.
type Translations interface {
	// Wrong is for the kernel's entries.
	Wrong(k *conntrack.Connection, host func(netip.Addr) bool, inSwitch bool) bool
	// Switched reports whether the bridge translates too. WrongInSwitch is for its zone of policy then, WrongAddress for that of
	// translations.
	Switched() bool
	WrongInSwitch(k *conntrack.Connection) bool
	WrongAddress(k *conntrack.Connection) bool
}

// EndTranslations deletes the entries with a wrong translation, and returns their number. The next packet of such a flow begins a
// connection, and gets the source that it must have. Policy judges it as any new one.
func (c *Carrier) EndTranslations(ctx context.Context, t Translations, inSwitch bool) (int, error) {
	ended := 0
	s, err := c.look()
	if err == nil {
		err = c.withZone(ctx, func(kernel *conntrack.Kernel, z zone) (err error) {
			ended, err = endTranslations(ctx, kernel, z, s, t, inSwitch)
			return err
		})
	}
	if err != nil {
		return ended, fmt.Errorf("end connections with another source than they must have: %w", err)
	}
	return ended, nil
}

func endTranslations(ctx context.Context, kernel *conntrack.Kernel, z zone, s *sight, t Translations, inSwitch bool) (int, error) {
	var wrong []conntrack.Connection
	if err := kernel.Dump(func(k conntrack.Connection) {
		if k.Zone == 0 && t.Wrong(&k, func(a netip.Addr) bool { return s.host[a] }, inSwitch) {
			wrong = append(wrong, k)
		}
	}); err != nil {
		return 0, err
	}
	ended, err := kernel.Delete(wrong)
	if u, ok := z.(*userspaceZone); ok && t.Switched() {
		n, failed := u.endTranslations(ctx, t)
		ended, err = ended+n, errors.Join(err, failed)
	}
	return ended, err
}

// endTranslations deletes the entries of the bridge, which translates in the userspace datapath only.
func (z *userspaceZone) endTranslations(ctx context.Context, t Translations) (ended int, err error) {
	for zone, isWrong := range map[uint16]func(*conntrack.Connection) bool{pipeline.Zone: t.WrongInSwitch, pipeline.SNATZone: t.WrongAddress} {
		all, unread := z.client.DumpConntrack(ctx, zone)
		if knowsNothing(unread) {
			return 0, err
		}
		var wrong []conntrack.Tuple
		for i := range all {
			if isWrong(&all[i]) {
				wrong = append(wrong, all[i].Original)
			}
		}
		n, failed := z.client.FlushConnections(ctx, zone, wrong)
		ended, err = ended+n, errors.Join(err, unread, failed)
	}
	return ended, err
}
