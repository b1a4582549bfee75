package hostnet

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"

	socket "github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/model"
)

// concerned returns the object that is not in the desired state according to a notification
// of the kernel, for example "route 10.10.1.0/24". It returns "" if the object is as desired or
// not ours, and for a notification that it cannot parse.
func (d *drift) concerned(m socket.Message) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.applied {
		return "" // the first Apply reads everything
	}
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return d.concernedLink(m)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		return d.concernedAddress(m)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return d.concernedRoute(m)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		return d.concernedNeighbour(m)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		return d.concernedRule(m)
	}
	return ""
}

// concernedLink parses struct ifinfomsg.
func (d *drift) concernedLink(m socket.Message) string {
	a, ok := attributes(m.Data, unix.SizeofIfInfomsg)
	if !ok {
		return ""
	}
	index := int(int32(binary.NativeEndian.Uint32(m.Data[4:])))
	up := binary.NativeEndian.Uint32(m.Data[8:])&unix.IFF_UP != 0
	gone := m.Header.Type == unix.RTM_DELLINK
	named := strings.TrimRight(string(a[unix.IFLA_IFNAME]), "\x00") == d.wanted.Gateway
	mtu := int(number(a[unix.IFLA_MTU]))
	if index == d.link && (gone || !named) || named && !gone && (index != d.link || !up || d.mtu > 0 && mtu != d.mtu) {
		return kindLink + " " + d.wanted.Gateway
	}
	// The routes by a device go with it, and when it is down.
	if index == d.device && (gone || !up) {
		return kindLink + " " + d.wanted.Device
	}
	return ""
}

// concernedAddress parses struct ifaddrmsg.
func (d *drift) concernedAddress(m socket.Message) string {
	a, ok := attributes(m.Data, unix.SizeofIfAddrmsg)
	if !ok {
		return ""
	}
	raw := a[unix.IFA_LOCAL]
	if raw == nil {
		raw = a[unix.IFA_ADDRESS]
	}
	address := addrOf(raw)
	at := netip.PrefixFrom(address, int(m.Data[1]))
	gone := m.Header.Type == unix.RTM_DELADDR
	ours := int(binary.NativeEndian.Uint32(m.Data[4:])) == d.link
	switch {
	case ours && gone == d.wanted.hasAddress(at) && !address.IsLinkLocalUnicast():
		return kindAddress + " " + at.String()
	case !ours && d.wanted.isNode(address) && (gone || d.outage.err != nil):
		// With the address, the kernel removes the IPv4 routes that have it as their source.
		// They cannot be added without it, so its return is a reason to try again.
		return kindAddress + " " + address.String()
	}
	return ""
}

// concernedRoute parses struct rtmsg.
func (d *drift) concernedRoute(m socket.Message) string {
	a, ok := attributes(m.Data, unix.SizeofRtMsg)
	if !ok {
		return ""
	}
	f, ok := familyOf(m.Data[0])
	to := netip.PrefixFrom(addrOf(a[unix.RTA_DST]), int(m.Data[1]))
	if !ok || !to.IsValid() {
		return ""
	}
	r := route{dst: to, via: addrOf(a[unix.RTA_GATEWAY]), src: addrOf(a[unix.RTA_PREFSRC]), table: int(number(a[unix.RTA_TABLE])), family: f}
	out := int(number(a[unix.RTA_OIF]))
	r.encrypted = d.device != 0 && out == d.device
	r.unreachable = m.Data[7] == unix.RTN_UNREACHABLE
	r.direct = !r.encrypted && !r.unreachable && out != d.link
	_, wanted := d.wanted.byID[r.identity()]
	ours := m.Data[5] == Protocol
	asDesired := ours && d.wanted.hasRoute(r)
	switch gone := m.Header.Type == unix.RTM_DELROUTE; {
	case gone && wanted, !gone && wanted && !asDesired, !gone && ours && !wanted:
		return kindRoute + " " + r.String()
	}
	return ""
}

// concernedNeighbour parses struct ndmsg.
func (d *drift) concernedNeighbour(m socket.Message) string {
	a, ok := attributes(m.Data, unix.SizeofNdMsg)
	if !ok || int(binary.NativeEndian.Uint32(m.Data[4:])) != d.link {
		return ""
	}
	address, mac := addrOf(a[unix.NDA_DST]), net.HardwareAddr(a[unix.NDA_LLADDR])
	_, wanted := d.wanted.macs[address]
	permanent := binary.NativeEndian.Uint16(m.Data[8:])&unix.NUD_PERMANENT != 0
	switch gone := m.Header.Type == unix.RTM_DELNEIGH; {
	case wanted && (gone || !permanent || !d.wanted.hasNeighbour(address, string(mac))),
		!wanted && !gone && permanent && d.wanted.claims(address, mac):
		return kindNeighbour + " " + address.String()
	}
	return ""
}

// concernedRule parses struct fib_rule_hdr, which has the size of struct rtmsg.
func (d *drift) concernedRule(m socket.Message) string {
	a, ok := attributes(m.Data, unix.SizeofRtMsg)
	if !ok {
		return ""
	}
	f, ok := familyOf(m.Data[0])
	r := policyRule{int(number(a[unix.FRA_PRIORITY])), int(number(a[unix.FRA_TABLE])), number(a[unix.FRA_FWMARK])}
	if !ok || !d.wanted.ownsRule(r.priority, r.table) {
		return ""
	}
	gone := m.Header.Type == unix.RTM_DELRULE
	ours := strings.TrimRight(string(a[unix.FRA_IIFNAME]), "\x00") == d.wanted.Gateway && number(a[unix.FRA_FWMASK]) == r.mark
	if asDesired := ours && d.wanted.hasRule(f, r); gone == asDesired {
		return kindRule + " " + ruleName(r.priority, f)
	}
	return ""
}

// attributes returns the attributes after a header of this size. ok is false if the
// message is truncated.
func attributes(data []byte, header int) (values map[uint16][]byte, ok bool) {
	if len(data) < header {
		return nil, false
	}
	all, err := socket.UnmarshalAttributes(data[header:])
	if err != nil {
		return nil, false
	}
	values = make(map[uint16][]byte, len(all))
	for _, a := range all {
		values[a.Type] = a.Data
	}
	return values, true
}

// number reads an attribute of four bytes, and returns 0 without one.
func number(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

func familyOf(family byte) (model.Family, bool) {
	switch family {
	case unix.AF_INET:
		return model.IPv4, true
	case unix.AF_INET6:
		return model.IPv6, true
	}
	return 0, false
}
