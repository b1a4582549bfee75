package hostnet

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	socket "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/listing"
	"github.com/felixlike/felixlike/model"
)

const (
	// askAgain is the time until the second request for the MAC address of a neighbour that has not answered. Each
	// wait is twice the one before, up to askSeldom: each request is a broadcast or multicast in the subnet.
	askAgain  = time.Second
	askSeldom = time.Minute
	// lookAgain is the time between two looks without a notification, once all neighbours are known.
	lookAgain = 30 * time.Second
	// patience is how long the first report waits for answers.
	patience = 2 * time.Second
)

// Hops finds the neighbours by which this node's packets to the addresses of peers leave: the peers
// themselves where they are on a subnet of this node, else routers. It asks the neighbours that the kernel
// does not know. A known MAC address stays until the neighbour has another one: entries of neighbours that
// are silent come and go. The first report waits for the answers of all, for at most patience.
type Hops struct {
	gateway string
	wake    chan struct{}

	mu    sync.Mutex
	peers []netip.Addr
	// known is set by the first SetPeers, also without peers.
	known bool
}

// NewHops returns Hops for a node with a gateway port of that name, which leads to no neighbour.
func NewHops(gateway string) *Hops { return &Hops{gateway: gateway, wake: make(chan struct{}, 1)} }

// SetPeers replaces the addresses of the peers. It may be called from any goroutine.
func (h *Hops) SetPeers(all []netip.Addr) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known && slices.Equal(all, h.peers) {
		return
	}
	h.peers, h.known = slices.Clone(all), true
	select {
	case h.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// Run calls update with the hops that are known, sorted, after each change, until ctx ends. After an error it
// calls failed and tries again. It waits for the first SetPeers.
func (h *Hops) Run(ctx context.Context, update func([]model.Hop), failed func(error)) error {
	w := &hopWatch{hops: h, update: update, known: map[neighbour]model.MAC{}}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-h.wake:
	}
	return again(ctx, w.run, func(err error) { failed(fmt.Errorf("watch the neighbours that lead to peers: %w", err)) })
}

// Now returns the hops that are known. It waits for the answers of the others, for at most patience.
func (h *Hops) Now(ctx context.Context) ([]model.Hop, error) {
	var all []model.Hop
	w := &hopWatch{hops: h, reported: true, known: map[neighbour]model.MAC{}, update: func(found []model.Hop) { all = found }}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		whole, err := w.look()
		if err != nil || whole {
			return all, err
		}
		select {
		case <-ctx.Done():
			return all, nil
		case <-time.After(gather):
		}
	}
}

// neighbour is the kernel's key of a neighbour.
type neighbour struct {
	link int
	addr netip.Addr
}

// hopWatch holds the hops that were reported last.
type hopWatch struct {
	hops     *Hops
	update   func([]model.Hop)
	reported bool
	last     []model.Hop
	// known are the MAC addresses of the neighbours that lead to peers; zero while they are not known.
	known map[neighbour]model.MAC
	// began is the time of the first look.
	began time.Time
	// silent is the number of peers whose hop is not known, and wait the last wait for them.
	silent int
	wait   time.Duration
}

func (w *hopWatch) run(ctx context.Context) (err error) {
	s, err := socket.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return fmt.Errorf("connect to netlink: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, group := range []uint32{unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_LINK} {
		if err := s.JoinGroup(group); err != nil {
			return fmt.Errorf("join group %d of rtnetlink: %w", group, err)
		}
	}
	if err := s.SetReadBuffer(watchBuffer); err != nil {
		return fmt.Errorf("set the receive buffer of rtnetlink: %w", err)
	}
	notices, ended := make(chan struct{}, 1), make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { _ = s.SetReadDeadline(time.Unix(1, 0)) })
	concerns := make(chan map[neighbour]model.MAC, 1)
	go func() { ended <- receive(s, concerns, notices) }()
	defer func() { cancel(); <-ended }()
	for {
		whole, err := w.look()
		if err != nil {
			return err
		}
		offer(concerns, w.known)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			ended <- err
			return err
		case <-w.hops.wake:
			w.wait = 0
		case <-notices:
		case <-time.After(w.next(whole)):
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(gather):
		}
	}
}

// next returns the time until the next look without a notification.
func (w *hopWatch) next(whole bool) time.Duration {
	switch {
	case whole:
		w.wait = 0
		return lookAgain
	case !w.reported:
		return askAgain // see patience
	}
	w.wait = min(max(askAgain, 2*w.wait), askSeldom)
	return w.wait
}

// offer replaces the value in a channel of one.
func offer(c chan map[neighbour]model.MAC, known map[neighbour]model.MAC) {
	select {
	case <-c:
	default:
	}
	c <- known
}

// receive notes the notifications that may change the hops, until the socket's deadline.
func receive(s *socket.Conn, concerns <-chan map[neighbour]model.MAC, notices chan<- struct{}) error {
	var known map[neighbour]model.MAC
	for {
		messages, err := s.Receive()
		lost := errors.Is(err, unix.ENOBUFS)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case err != nil && !lost:
			return fmt.Errorf("read notifications: %w", err)
		}
		select {
		case known = <-concerns:
		default:
		}
		if lost || known == nil || slices.ContainsFunc(messages, func(m socket.Message) bool { return moves(m, known) }) {
			select {
			case notices <- struct{}{}:
			default:
			}
		}
	}
}

// moves reports whether a notification may change the hops.
func moves(m socket.Message, known map[neighbour]model.MAC) bool {
	switch m.Header.Type {
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		a, ok := attributes(m.Data, unix.SizeofNdMsg)
		if !ok {
			return false
		}
		key := neighbour{int(int32(binary.NativeEndian.Uint32(m.Data[4:]))), addrOf(a[unix.NDA_DST])}
		mac, wanted := known[key]
		raw := a[unix.NDA_LLADDR]
		return wanted && m.Header.Type == unix.RTM_NEWNEIGH && len(raw) == len(mac) && model.MAC(raw) != mac
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return len(m.Data) >= unix.SizeofRtMsg && m.Data[5] != Protocol
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		// Each new pod is a link. A link that begins to lead to peers comes with routes.
		if len(m.Data) < unix.SizeofIfInfomsg {
			return false
		}
		link := int(int32(binary.NativeEndian.Uint32(m.Data[4:])))
		for n := range known {
			if n.link == link {
				return true
			}
		}
		return false
	}
	return true
}

// look finds the hops, and calls update if they have changed. It reports whether all are known.
func (w *hopWatch) look() (whole bool, err error) {
	w.hops.mu.Lock()
	peers := w.hops.peers
	w.hops.mu.Unlock()
	ways, links := map[netip.Addr]neighbour{}, map[int]*netlink.LinkAttrs{}
	for _, p := range peers {
		if n, link, ok := nextHop(p); ok && link.Name != w.hops.gateway {
			ways[p], links[n.link] = n, link
		}
	}
	now, err := w.learn(ways)
	if err != nil {
		return false, err
	}
	var hops []model.Hop
	for p, n := range ways {
		if mac := now[n]; mac != (model.MAC{}) {
			hop := model.Hop{Address: p, Interface: links[n.link].Name, Neighbour: n.addr, MAC: mac}
			copy(hop.InterfaceMAC[:], links[n.link].HardwareAddr)
			hops = append(hops, hop)
		}
	}
	slices.SortFunc(hops, func(a, b model.Hop) int { return a.Address.Compare(b.Address) })
	if silent := len(peers) - len(hops); silent != w.silent {
		w.silent, w.wait = silent, 0
	}
	whole = w.silent == 0
	w.known = now
	if w.began.IsZero() {
		w.began = time.Now()
	}
	if !w.reported && !whole && time.Since(w.began) < patience {
		return false, nil
	}
	if !w.reported || !slices.Equal(hops, w.last) {
		w.reported, w.last = true, hops
		w.update(slices.Clone(hops))
	}
	return whole, nil
}

// learn returns the MAC addresses of the neighbours, and asks for those that are not known.
func (w *hopWatch) learn(ways map[netip.Addr]neighbour) (map[neighbour]model.MAC, error) {
	now := map[neighbour]model.MAC{}
	for _, n := range ways {
		now[n] = w.known[n]
	}
	for _, f := range model.Families() {
		all, err := listing.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(0, netlinkFamily(f)) })
		if err != nil {
			return nil, fmt.Errorf("list neighbours: %w", err)
		}
		for _, n := range all {
			key := neighbour{n.LinkIndex, addrOf(n.IP)}
			if _, wanted := now[key]; wanted && len(n.HardwareAddr) == len(model.MAC{}) && n.State&(netlink.NUD_INCOMPLETE|netlink.NUD_FAILED) == 0 {
				now[key] = model.MAC(n.HardwareAddr)
			}
		}
	}
	for n, mac := range now {
		if mac == (model.MAC{}) {
			// Without an answer the neighbour stays unknown, and its packets are not believed.
			_ = netlink.NeighSet(&netlink.Neigh{
				LinkIndex: n.link, Family: netlinkFamily(model.FamilyOf(n.addr)), IP: n.addr.AsSlice(), Flags: netlink.NTF_USE,
			})
		}
	}
	return now, nil
}

// nextHop returns the neighbour that this node's packets to an address go to, with the interface.
func nextHop(to netip.Addr) (n neighbour, iface *netlink.LinkAttrs, ok bool) {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_UNICAST {
		return n, nil, false
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return n, nil, false
	}
	via := addrOf(routes[0].Gw)
	if !via.IsValid() {
		via = to
	}
	return neighbour{link.Attrs().Index, via}, link.Attrs(), true
}
