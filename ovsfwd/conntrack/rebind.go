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
// connection, so the new entry accepts any sequence number. Rebind returns the number of new entries, and leaves echo requests and the like alone.
func (k *Kernel) Rebind(all []Connection) (int, error) {
	var puts []Put
	for i := range all {
		if c := &all[i]; !c.Original.IsICMP() {
			p := Put{Connection: *c, Instead: c, New: true, MarkMask: math.MaxUint32}
			p.Liberal = p.Original.Protocol == unix.IPPROTO_TCP
			puts = append(puts, p)
		}
	}
	taken, err := k.Write(puts)
	if err != nil {
		err = fmt.Errorf("make masqueraded connections anew: %w", err)
	}
	return taken, err
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
