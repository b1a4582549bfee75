package foreign

import (
	"context"
	"errors"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
)

// watchPause is the least time between two notices: each costs a look at all chains at FORWARD.
const watchPause = time.Second

// WatchForwarded calls changed after the answer of DropsForwarded may have changed: a base chain at FORWARD has come, changed or gone, or a rule in
// one. It misses rules in chains that such a chain leads to. It returns when ctx ends, or when it cannot watch. The other parameters
// are as in DropsForwarded.
func WatchForwarded(ctx context.Context, netns int, own string, changed func()) (err error) {
	l, err := nfnetlink.Listen(netns, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	defer l.Until(ctx)()
	w := &forwardWatch{own: own, at: map[chainKey]bool{}}
	if err := w.begin(netns); err != nil {
		return err
	}
	changed() // what came before is not known
	notice := newPaced(watchPause, changed)
	defer notice.stop()
	for {
		all, err := l.Receive()
		if err != nil {
			return err
		}
		for n := range all {
			if w.concerns(n) {
				notice.call()
			}
		}
	}
}

// forwardWatch knows the base chains at FORWARD.
type forwardWatch struct {
	own string
	at  map[chainKey]bool
}

type chainKey struct {
	family      uint8
	table, name string
}

func (w *forwardWatch) begin(netns int) (err error) {
	c, err := nfnetlink.Dial(netns)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, f := range []family{{unix.NFPROTO_INET, "inet"}, {unix.NFPROTO_IPV4, "ip"}, {unix.NFPROTO_IPV6, "ip6"}} {
		bases, err := f.bases(c, w.own)
		if err != nil {
			return err
		}
		for _, b := range bases {
			if b.hook == unix.NF_INET_FORWARD {
				w.at[chainKey{f.number, b.table, b.name}] = true
			}
		}
	}
	return nil
}

// concerns reports whether a notification is about a base chain at FORWARD of another program, and learns of it.
func (w *forwardWatch) concerns(n nfnetlink.Notification) bool {
	if n.Family != unix.NFPROTO_INET && n.Family != unix.NFPROTO_IPV4 && n.Family != unix.NFPROTO_IPV6 {
		return false
	}
	switch n.Kind {
	case unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_DELCHAIN:
		key := chainKey{n.Family, nfnetlink.Text(attribute(n.Attributes, unix.NFTA_CHAIN_TABLE)), nfnetlink.Text(attribute(n.Attributes, unix.NFTA_CHAIN_NAME))}
		hook := attribute(n.Attributes, unix.NFTA_CHAIN_HOOK)
		if strings.HasPrefix(key.table, w.own) || !w.at[key] && (hook == nil || number(attribute(hook, unix.NFTA_HOOK_HOOKNUM)) != unix.NF_INET_FORWARD) {
			return false
		}
		if w.at[key] = true; n.Kind == unix.NFT_MSG_DELCHAIN {
			delete(w.at, key)
		}
		return true
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		return w.at[chainKey{n.Family, nfnetlink.Text(attribute(n.Attributes, unix.NFTA_RULE_TABLE)), nfnetlink.Text(attribute(n.Attributes, unix.NFTA_RULE_CHAIN))}]
	case unix.NFT_MSG_NEWTABLE: // it may have been dormant
		table := nfnetlink.Text(attribute(n.Attributes, unix.NFTA_TABLE_NAME))
		for key := range w.at {
			if key.family == n.Family && key.table == table {
				return true
			}
		}
	}
	return false
}

// paced calls a function at most once in a while, and at the end of the while for what came meanwhile.
type paced struct {
	every time.Duration
	do    func()
	last  time.Time
	timer *time.Timer
}

func newPaced(every time.Duration, do func()) *paced { return &paced{every: every, do: do} }

func (p *paced) call() {
	now := time.Now()
	switch {
	case now.Before(p.last): // a call is due then
	case now.Sub(p.last) >= p.every:
		p.last = now
		p.do()
	default:
		p.last = p.last.Add(p.every)
		p.timer = time.AfterFunc(p.last.Sub(now), p.do)
	}
}

func (p *paced) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}
