package conntrack

import (
	"fmt"
	"math"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// Attributes of a translation (linux/netfilter/nfnetlink_conntrack.h).
const (
	attrNATSource      = 6
	attrNATDestination = 13

	attrNATv4Min = 1
	attrNATv4Max = 2
	attrNATProto = 3
	attrNATv6Min = 4
	attrNATv6Max = 5

	attrNATPortMin = 1
	attrNATPortMax = 2
)

// statusSourceNAT is the bit of a connection whose source is translated.
const statusSourceNAT uint32 = 1 << 4

// MasqueradedBy reports whether the connection's source is translated to an address. The kernel does not
// distinguish masquerading from other translations.
func (c *Connection) MasqueradedBy(address netip.Addr) bool {
	return c.status&statusSourceNAT != 0 && c.Reply.Dst == address
}

// Rebind replaces entries from Dump by equal ones, without the interface that masquerading has bound them to:
// the kernel ends a masqueraded connection when its packets leave by another interface, or when its interface
// loses the address (nf_nat_oif_changed, masq_inet_event). A new entry does not know the windows of TCP. The
// kernel would guess them from the next segments. A server that then sends more than the guess would lose its
// connection, so the new entry accepts any sequence number. No message comes between the end of an entry and
// its new beginning. Rebind returns the number of new entries, and leaves echo requests and the like alone.
func (k *Kernel) Rebind(all []Connection) (int, error) {
	var steps []rebinding
	for i := range all {
		if c := &all[i]; !c.Original.IsICMP() {
			steps = append(steps, rebinding{c, false}, rebinding{c, true})
		}
	}
	taken, err := send(k, steps, k.rebind, func(r *rebinding, code unix.Errno) error {
		if code == unix.ENOENT && !r.begin {
			return nil // it has ended meanwhile
		}
		return fmt.Errorf("connection %s: %w", r.Original, code)
	})
	if err != nil {
		err = fmt.Errorf("make masqueraded connections anew: %w", err)
	}
	return taken / 2, err
}

// rebinding is the end of an entry, or its new beginning.
type rebinding struct {
	*Connection
	begin bool
}

func (k *Kernel) rebind(r *rebinding) {
	if !r.begin {
		k.remove(r.Connection)
		return
	}
	p := &Put{Connection: *r.Connection, New: true, MarkMask: math.MaxUint32}
	p.Liberal = p.Original.Protocol == unix.IPPROTO_TCP
	p.Reply = p.Original.Reverse()
	k.begin(p)
	if to := r.Reply; to != p.Reply {
		putTranslation(&k.m.Buffer, attrNATDestination, to.Src, to.SrcPort)
		putTranslation(&k.m.Buffer, attrNATSource, to.Dst, to.DstPort)
	}
	k.m.End()
}

// putTranslation writes the translation of one end. To the kernel, too, an unchanged address and port is no
// translation.
func putTranslation(b *nfnetlink.Buffer, kind uint16, address netip.Addr, port uint16) {
	nat := b.Nest(kind)
	least, most := uint16(attrNATv4Min), uint16(attrNATv4Max)
	if address.Is6() {
		least, most = attrNATv6Min, attrNATv6Max
	}
	b.Data(least, address.AsSlice())
	b.Data(most, address.AsSlice())
	proto := b.Nest(attrNATProto)
	b.Uint16(attrNATPortMin, port)
	b.Uint16(attrNATPortMax, port)
	b.Close(proto)
	b.Close(nat)
}
