package carry

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

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
//
// Latest is called when the entries have been read, and returns what they must have by then, or nil if that is not known: a connection
// that began after t has its source by the later one. An entry is deleted if it is wrong by both, and has got no answer meanwhile.
func (c *Carrier) EndTranslations(ctx context.Context, t Translations, inSwitch bool, latest func() Translations) (int, error) {
	ended := 0
	s, err := c.look()
	if err == nil {
		err = c.withZone(ctx, func(kernel *conntrack.Kernel, z zone) (err error) {
			ended, err = endInKernel(kernel, s, t, inSwitch, latest)
			if u, ok := z.(*userspaceZone); ok && t.Switched() {
				n, failed := u.endTranslations(ctx, t, latest)
				ended, err = ended+n, errors.Join(err, failed)
			}
			return err
		})
	}
	if err != nil {
		return ended, fmt.Errorf("end connections with another source than they must have: %w", err)
	}
	return ended, nil
}

// endInKernel deletes entries of the kernel. It reads them twice, because a connection may have got its answer meanwhile. Without its entry,
// the next packet of a connection of TCP would leave from another port, and the server would reset it.
func endInKernel(kernel *conntrack.Kernel, s *sight, t Translations, inSwitch bool, latest func() Translations) (int, error) {
	host := func(a netip.Addr) bool { return s.host[a] }
	wrong := func() (all []conntrack.Connection, err error) {
		err = kernel.Dump(func(k conntrack.Connection) {
			if k.Zone == 0 && t.Wrong(&k, host, inSwitch) {
				all = append(all, k)
			}
		})
		return all, err
	}
	all, err := wrong()
	if err != nil || len(all) == 0 {
		return 0, err
	}
	if t = latest(); t == nil {
		return 0, nil
	}
	before := map[conntrack.Tuple]bool{}
	for i := range all {
		before[all[i].Original] = true
	}
	if all, err = wrong(); err != nil {
		return 0, err
	}
	return kernel.Delete(slices.DeleteFunc(all, func(k conntrack.Connection) bool { return !before[k.Original] }))
}

// endTranslations deletes the entries of the bridge, which translates in the userspace datapath only.
func (z *userspaceZone) endTranslations(ctx context.Context, t Translations, latest func() Translations) (ended int, err error) {
	for zone, isWrong := range map[uint16]func(Translations, *conntrack.Connection) bool{
		pipeline.Zone: Translations.WrongInSwitch, pipeline.SNATZone: Translations.WrongAddress,
	} {
		before := map[conntrack.Tuple]bool{}
		all, unread := z.client.DumpConntrack(ctx, zone)
		if knowsNothing(unread) {
			return 0, err
		}
		for i := range all {
			if isWrong(t, &all[i]) {
				before[all[i].Original] = true
			}
		}
		if len(before) == 0 {
			err = errors.Join(err, unread)
			continue
		}
		later := latest()
		if later == nil {
			return ended, err
		}
		if all, unread = z.client.DumpConntrack(ctx, zone); knowsNothing(unread) {
			return ended, err
		}
		var wrong []conntrack.Tuple
		for i := range all {
			if before[all[i].Original] && isWrong(later, &all[i]) {
				wrong = append(wrong, all[i].Original)
			}
		}
		n, failed := z.client.FlushConnections(ctx, zone, wrong)
		ended, err = ended+n, errors.Join(err, unread, failed)
	}
	return ended, err
}
