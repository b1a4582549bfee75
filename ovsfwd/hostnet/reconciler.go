package hostnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/listing"
	"github.com/felixlike/felixlike/model"
)

// Reconciler brings the host's network to the desired state. It is used from one goroutine.
type Reconciler struct {
	wanted *objects
	// mtu is the MTU of the gateway port in bytes; 0 leaves the port's MTU unchanged.
	mtu int
	// clean is set if the kernel is in sync with the desired state.
	clean bool
	// last is the state that the last successful Apply programmed.
	last programmed
	// drift is shared with Watch.
	drift drift
}

// programmed is the state that an Apply has programmed. If the observed state differs from it
// and the desired state does not, the difference is a foreign change.
type programmed struct {
	*objects
	// link is the index of the gateway port, and mtu its MTU. device is the index of the WireGuard device; zero
	// without one.
	link, mtu, device int
}

// NewReconciler returns a reconciler without a desired state.
func NewReconciler() *Reconciler { return &Reconciler{} }

// SetState replaces the desired state.
func (r *Reconciler) SetState(s State) {
	r.wanted = newObjects(s)
	r.drift.want(r.wanted)
	r.clean = false
}

// SetMTU sets the MTU of the gateway port.
func (r *Reconciler) SetMTU(mtu int) {
	r.clean = r.clean && mtu == r.mtu
	r.mtu = mtu
	r.drift.wantMTU(mtu)
}

// Invalidate makes the next Apply read the kernel again.
func (r *Reconciler) Invalidate() { r.clean = false }

// Apply writes the differences. After a failed write it continues with the others, and joins
// the errors. It reads nothing if the desired state is unchanged and Watch has noticed no
// change.
func (r *Reconciler) Apply(context.Context) (Result, error) {
	if r.wanted == nil {
		return Result{}, nil
	}
	noticed, ok := r.drift.begin(!r.clean)
	if !ok {
		return Result{}, nil
	}
	p := &pass{wanted: r.wanted, mtu: r.mtu, before: r.last, log: repairLog{noticed: noticed, with: map[string]int{}}}
	link, err := netlink.LinkByName(r.wanted.Gateway)
	if err != nil {
		p.fail("gateway port "+r.wanted.Gateway, err)
	} else {
		p.link = link
		p.findDevice()
		p.all()
	}
	err = errors.Join(p.errs...)
	if r.clean = err == nil; r.clean {
		r.last = programmed{r.wanted, link.Attrs().Index, r.mtu, p.device}
	}
	did := Result{Writes: p.writes, Repaired: p.log.repairs(r.wanted.Gateway)}
	r.drift.end(r.last, noticed, did.Repaired, err)
	return did, err
}

// Problem returns the reason if the host network has not been in the desired state for longer
// than a repair takes, or "". It may be called from any goroutine.
func (r *Reconciler) Problem() string { return r.drift.problem(time.Now()) }

// Remove undoes the writes of earlier runs for a gateway port with this name, except for
// sysctls, because other programs may rely on them. It may be repeated.
func Remove(gateway string, table, priority int) error {
	p := &pass{wanted: newObjects(State{Gateway: gateway, RouteTable: table, RulePriority: priority})}
	link, err := netlink.LinkByName(gateway)
	switch {
	case err == nil:
		p.link = link
		late := p.addresses()
		p.neighbours()
		p.routes()
		late()
	case !errors.As(err, &netlink.LinkNotFoundError{}):
		return fmt.Errorf("gateway port %s: %w", gateway, err)
	default:
		// Addresses, neighbours and routes go with a port; those to routed peers outlive it, as the rules.
		p.routes()
	}
	p.rules()
	return errors.Join(p.errs...)
}

// all compares everything.
func (p *pass) all() {
	if p.again() && p.before.link != p.link.Attrs().Index {
		p.log.link = "replaced by another interface"
	}
	p.sysctls()
	p.port()
	failed := len(p.errs)
	late := p.addresses()
	p.neighbours()
	p.routes()
	if len(p.errs) == failed {
		late()
	}
	if p.log.own {
		// With an address of its own, the kernel removes routes and neighbours of the port.
		p.neighbours()
		p.routes()
	}
	p.rules()
}

// findDevice finds the WireGuard device. Without it, all other routes are programmed.
func (p *pass) findDevice() {
	if p.wanted.Device == "" {
		return
	}
	device, err := netlink.LinkByName(p.wanted.Device)
	if err != nil {
		p.fail("WireGuard device "+p.wanted.Device, err)
		return
	}
	p.device = device.Attrs().Index
}

func (p *pass) port() {
	at := p.link.Attrs()
	if mtu := p.mtu; mtu > 0 && at.MTU != mtu {
		ok := p.write(fmt.Sprintf("set mtu %d of %s", mtu, p.wanted.Gateway), netlink.LinkSetMTU(p.link, mtu))
		if ok && p.again() && p.before.mtu == mtu {
			p.log.add(kindLink, p.wanted.Gateway, fmt.Sprintf("mtu %d instead of %d", at.MTU, mtu))
		}
	}
	if at.Flags&net.FlagUp == 0 {
		if p.write("set up "+p.wanted.Gateway, netlink.LinkSetUp(p.link)) && p.again() {
			p.log.link = cmp.Or(p.log.link, "down")
		}
	}
}

// addresses adds missing addresses. It returns the removals, which must run after routes: the route of an old address is the only one to
// all pods until then.
func (p *pass) addresses() (late func()) {
	lacks := map[netip.Prefix]bool{}
	for _, a := range p.wanted.portAddresses() {
		lacks[a] = true
	}
	actual, err := listing.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(p.link, netlink.FAMILY_ALL) })
	if err != nil {
		p.fail("list addresses of "+p.wanted.Gateway, err)
		return func() {}
	}
	var stale []netlink.Addr
	for i := range actual {
		a := prefixOf(actual[i].IPNet)
		if lacks[a] {
			delete(lacks, a)
		}
		// The port is ours alone, but its link-local address is the kernel's.
		if !p.wanted.hasAddress(a) && !a.Addr().IsLinkLocalUnicast() || a.Addr().Is6() && p.wanted.hasAddress(a) && actual[i].Flags&unix.IFA_F_NOPREFIXROUTE == 0 {
			stale = append(stale, actual[i])
		}
	}
	for _, a := range p.wanted.portAddresses() {
		if lacks[a] {
			p.addAddress(a, missing)
		}
	}
	return func() {
		for i := range stale {
			a := prefixOf(stale[i].IPNet)
			if p.wanted.hasAddress(a) {
				p.addAddress(a, "with a route of its prefix")
				continue
			}
			ok := p.write(fmt.Sprintf("remove address %s from %s", a, p.wanted.Gateway), netlink.AddrDel(p.link, &stale[i]))
			switch {
			case !ok || !p.again():
			case p.before.hasAddress(a):
				p.log.own = true
			default:
				p.log.add(kindAddress, a.String(), "foreign")
			}
		}
	}
}

// addAddress adds an address without a route of its prefix, or takes the route away.
func (p *pass) addAddress(a netip.Prefix, why string) {
	addr := &netlink.Addr{IPNet: netOf(a)}
	if a.Addr().Is6() {
		// No duplicate is possible: spoofguard pins the address to this port.
		addr.Flags = unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE
	}
	ok := p.write(fmt.Sprintf("add address %s to %s", a, p.wanted.Gateway), netlink.AddrReplace(p.link, addr))
	if ok && p.again() && p.before.hasAddress(a) {
		p.log.add(kindAddress, a.String(), why)
	}
}

func (p *pass) neighbours() {
	lacks, changed := maps.Clone(p.wanted.macs), map[netip.Addr]string{}
	ours, err := p.nextHops()
	if err != nil {
		p.fail("list routes", err)
		return
	}
	for _, f := range model.Families() {
		actual, err := listing.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(p.link.Attrs().Index, netlinkFamily(f)) })
		if err != nil {
			p.fail("list neighbours of "+p.wanted.Gateway, err)
			return
		}
		for i := range actual {
			n := actual[i]
			if n.State&netlink.NUD_PERMANENT == 0 || n.IP.IsMulticast() {
				continue
			}
			a := addrOf(n.IP)
			mac, want := lacks[a]
			switch {
			case want && mac == string(n.HardwareAddr):
				delete(lacks, a)
			case want:
				changed[a] = "MAC address " + n.HardwareAddr.String()
			case ours[a] || p.wanted.claims(a, n.HardwareAddr):
				ok := p.write(fmt.Sprintf("remove neighbour %s from %s", a, p.wanted.Gateway), netlink.NeighDel(&n))
				if ok && p.again() && !p.before.hasNeighbour(a, string(n.HardwareAddr)) {
					p.log.add(kindNeighbour, a.String(), "foreign")
				}
			}
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(lacks), netip.Addr.Compare) {
		ok := p.write(fmt.Sprintf("set neighbour %s on %s", a, p.wanted.Gateway), netlink.NeighSet(&netlink.Neigh{
			LinkIndex: p.link.Attrs().Index, State: netlink.NUD_PERMANENT, Family: netlinkFamily(model.FamilyOf(a)),
			IP: a.AsSlice(), HardwareAddr: net.HardwareAddr(lacks[a]),
		}))
		if ok && p.again() && p.before.hasNeighbour(a, lacks[a]) {
			p.log.add(kindNeighbour, a.String(), cmp.Or(changed[a], missing))
		}
	}
}

// foreignRules bounds the foreign rules that one pass removes from a family.
const foreignRules = 8

func (p *pass) rules() {
	for _, f := range model.Families() {
		// The kernel removes the first rule that has all attributes of the request. A request
		// for a rule with fewer conditions may match our rule too, so the rules are listed again
		// after each removal.
		removed := 0
		for removed < foreignRules && p.rule(f) {
			removed++
		}
		if removed == foreignRules {
			p.fail("policy rules", fmt.Errorf("%d foreign rules of priorities %d and %d were removed, and there may be more", removed, p.wanted.RulePriority, p.wanted.RulePriority+1))
		}
	}
}

// rule removes one foreign rule of our priorities and tables, or else adds the missing ones of ours. It reports whether it removed
// one.
func (p *pass) rule(f model.Family) bool {
	lacks := p.wanted.policyRules(f)
	actual, err := listing.Whole(func() ([]netlink.Rule, error) { return netlink.RuleList(netlinkFamily(f)) })
	if errors.Is(err, unix.EAFNOSUPPORT) && len(lacks) == 0 {
		return false // a kernel booted with ipv6.disable=1 has none
	}
	if err != nil {
		p.fail("list policy rules", err)
		return false
	}
	for i := range actual {
		r := actual[i]
		if !p.wanted.ownsRule(r.Priority, r.Table) {
			continue
		}
		found := policyRule{r.Priority, r.Table, r.Mark}
		ours := r.IifName == p.wanted.Gateway && wholeMask(r.Mark, r.Mask)
		if at := slices.Index(lacks, found); ours && at >= 0 {
			lacks = slices.Delete(lacks, at, at+1)
			continue
		}
		r.Family = netlinkFamily(f)
		ok := p.write(fmt.Sprintf("remove policy rule %d", r.Priority), netlink.RuleDel(&r))
		if ok && p.again() && !(ours && p.before.hasRule(f, found)) {
			p.log.add(kindRule, ruleName(r.Priority, f), "foreign")
		}
		return ok
	}
	for _, wanted := range lacks {
		r := netlink.NewRule()
		r.Family, r.Priority, r.Table, r.IifName = netlinkFamily(f), wanted.priority, wanted.table, p.wanted.Gateway
		if wanted.mark != 0 {
			r.Mark, r.Mask = wanted.mark, &wanted.mark
		}
		ok := p.write(fmt.Sprintf("add policy rule %d", r.Priority), netlink.RuleAdd(r))
		if ok && p.again() && p.before.hasRule(f, wanted) {
			p.log.add(kindRule, ruleName(r.Priority, f), missing)
		}
	}
	return false
}

// wholeMask reports whether a rule looks at the bits of its mark, and at no others.
func wholeMask(mark uint32, mask *uint32) bool {
	return mask == nil && mark == 0 || mask != nil && *mask == mark
}

// ruleName names the policy rule of a family.
func ruleName(priority int, f model.Family) string { return fmt.Sprintf("%d of IPv%s", priority, f) }
