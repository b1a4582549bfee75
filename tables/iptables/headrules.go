package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/model"
)

// head are the rules that are kept at the head of a chain of the table filter. The comment marks them. It has no hash: the rules lead
// to no chain of ours.
type head struct {
	chain, comment string
	// texts are the rules, none to remove them.
	texts []string
	// needed reports whether the chain needs them.
	needed func(*listed) bool
}

// inputHead is that of packets to this node, forwardHead that of forwarded ones.
func inputHead(texts ...string) head {
	return head{"INPUT", "felixlike tunnel packets of nodes", texts, func(l *listed) bool { return l.drops }}
}

func forwardHead(texts ...string) head {
	return head{"FORWARD", "felixlike packets of pods", texts, func(l *listed) bool { return l.blocks }}
}

// HeadRules keeps rules at the head of INPUT or FORWARD (table filter), in each variant and family whose chain drops packets. Only one
// goroutine may call Apply; Watch and Invalidate may run in others.
type HeadRules struct {
	netns   int
	head    head
	trusted atomic.Bool
	hidden  bool
	// blocking are the chains of the legacy variant that block although nobody keeps rules there.
	blocking []string
}

// Blocking returns the chains of the legacy variant that drop what no rule accepts, where these rules are off and no other one names the
// interface. It may be called where Apply is.
func (r *HeadRules) Blocking() []string { return r.blocking }

// Hidden reports whether iptables cannot show the chain of the nft variant, because another program has written to the table
// with nft. Then the rules cannot be kept there. It may be called where Apply is.
func (r *HeadRules) Hidden() bool { return r.hidden }

// NewInputRule returns the rule for a port and a mark, which replaces the rule for other ones: it accepts packets to the UDP port that have the
// mark, where a packet that comes into INPUT may be dropped. netns is a descriptor as in Options.
func NewInputRule(port uint16, mark uint32, netns int) *HeadRules {
	h := inputHead()
	h.texts = []string{fmt.Sprintf("-p udp -m udp --dport %d -m mark --mark %#x/%#[2]x -m comment --comment %s -j ACCEPT", port, mark, quote(h.comment))}
	return &HeadRules{netns: netns, head: h}
}

// NewForwardRules returns rules that accept packets from and to an interface, where FORWARD drops what no rule before has accepted: by its
// policy, or by a rule without conditions. Rules that drop some packets are left in force. Without an interface the rules are removed.
func NewForwardRules(name string, netns int) *HeadRules {
	h := forwardHead()
	if name != "" {
		for _, side := range []string{"-i", "-o"} {
			h.texts = append(h.texts, fmt.Sprintf("%s %s -m comment --comment %s -j ACCEPT", side, name, quote(h.comment)))
		}
	}
	return &HeadRules{netns: netns, head: h}
}

// Invalidate makes the next Apply read the chain.
func (r *HeadRules) Invalidate() { r.trusted.Store(false) }

// Apply inserts the rules where they are needed, and removes them elsewhere. It reads nothing if nothing was noticed
// since the last Apply. It returns the number of written tables.
func (r *HeadRules) Apply(ctx context.Context) (writes int, err error) {
	if r.trusted.Swap(true) {
		return 0, nil
	}
	writes, r.blocking, err = applyHead(ctx, r.netns, r.head)
	if r.hidden = errors.Is(err, errIncompatible); r.hidden {
		err = nil
	}
	if err != nil {
		r.Invalidate()
	}
	return writes, err
}

// RemoveInputRule removes the rule of any NewInputRule.
func RemoveInputRule(ctx context.Context, netns int) error {
	return removeHead(ctx, netns, inputHead())
}

// RemoveForwardRules removes the rules of any NewForwardRules.
func RemoveForwardRules(ctx context.Context, netns int) error {
	return removeHead(ctx, netns, forwardHead())
}

func removeHead(ctx context.Context, netns int, h head) error {
	_, _, err := applyHead(ctx, netns, h)
	if errors.Is(err, errIncompatible) {
		return nil // the rule was never there
	}
	return err
}

// applyHead keeps the rules in both variants and families.
func applyHead(ctx context.Context, netns int, h head) (writes int, blocking []string, err error) {
	var errs []error
	for _, v := range []Variant{Legacy, NFT} {
		for _, f := range model.Families() {
			wrote, blocks, err := headOf(ctx, v, f, netns, h)
			if blocks && v == Legacy {
				blocking = append(blocking, fmt.Sprintf("%s of iptables (%s, IPv%s)", h.chain, v, f))
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s of iptables (%s, IPv%s): %w", h.chain, v, f, err))
			}
			if wrote {
				writes++
			}
		}
	}
	return writes, blocking, errors.Join(errs...)
}

// headOf also reports whether the chain needs rules and has none: neither these nor another one that accepts packets of the pods' interface.
func headOf(ctx context.Context, v Variant, f model.Family, netns int, h head) (wrote, blocks bool, err error) {
	// Most nodes use one variant, or none. Then no program is started, and no module loaded for a table that nobody uses.
	uses := usesNFTFilter
	if v == Legacy {
		uses = usesLegacyFilter
	}
	if used, err := uses(f, netns); err != nil || !used {
		return false, false, err
	}
	t := newTools(v, []model.Family{f}, netns)
	in, err := h.read(ctx, t, f)
	if in == nil || err != nil {
		return false, false, err
	}
	blocks = h.needed(in) && len(h.texts) == 0 && in.entries == 0 && !in.named
	script := h.script(in)
	if script == "" {
		return false, blocks, nil
	}
	return true, blocks, t.load(ctx, f, []byte(script))
}

// read lists the chain, or nothing without the tools: then there is no rule of ours, and nobody else's either.
func (h head) read(ctx context.Context, t *tools, f model.Family) (*listed, error) {
	if err := t.find(ctx); errors.Is(err, exec.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	out, err := t.dump(ctx, f, "-t", tableFilter.String())
	if err != nil {
		return nil, err
	}
	return h.parse(string(out))
}

// LegacyDropsForwarded reports whether FORWARD of the legacy variant drops packets from and to the gateway port: what no rule accepts, and no rule names
// the port. It changes nothing.
func LegacyDropsForwarded(ctx context.Context, netns int, f model.Family) (bool, error) {
	if used, err := usesLegacyFilter(f, netns); err != nil || !used {
		return false, err
	}
	h := forwardHead()
	in, err := h.read(ctx, newTools(Legacy, []model.Family{f}, netns), f)
	if in == nil || err != nil {
		return false, err
	}
	return h.needed(in) && in.entries == 0 && len(in.ours) == 0 && !in.named, nil
}

// usesNFTFilter reports whether the kernel has the nft variant's table filter of a family.
func usesNFTFilter(f model.Family, netns int) (used bool, err error) {
	c, err := nfnetlink.Dial(netns)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var m nfnetlink.Messages
	number := byte(unix.NFPROTO_IPV4)
	if f == model.IPv6 {
		number = unix.NFPROTO_IPV6
	}
	m.Begin(unix.NFNL_SUBSYS_NFTABLES, unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP, number)
	m.End()
	// A kernel without nf_tables refuses, and has none of its tables.
	_, err = c.Dump(&m, func(attributes []byte) {
		for kind, v := range nfnetlink.Attributes(attributes) {
			used = used || kind == unix.NFTA_TABLE_NAME && nfnetlink.Text(v) == tableFilter.String()
		}
	})
	return used, err
}

// usesLegacyFilter reports whether the kernel has the legacy variant's table filter of a family.
func usesLegacyFilter(f model.Family, netns int) (used bool, err error) {
	done := make(chan error)
	go func() {
		// A thread that was elsewhere is not given back: it ends with the goroutine.
		runtime.LockOSThread()
		if netns == 0 {
			defer runtime.UnlockOSThread()
		} else if err := unix.Setns(netns, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the network namespace: %w", err)
			return
		}
		file := "/proc/thread-self/net/ip_tables_names"
		if f == model.IPv6 {
			file = "/proc/thread-self/net/ip6_tables_names"
		}
		names, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			err = nil // the kernel has no legacy tables
		}
		used = slices.Contains(strings.Fields(string(names)), tableFilter.String())
		done <- err
	}()
	return used, <-done
}

// listed is the chain as iptables-save shows it.
type listed struct {
	// rules are those of the chain; ours are the texts of HeadRules' among them.
	rules, ours []string
	// entries is the number of rules up to the last one that leads to a chain of the backend in this variant.
	entries int
	// drops says that a packet that comes into the chain may be dropped there or in a chain that it leads to, blocks that it is dropped if no rule accepts
	// it.
	drops, blocks bool
	// named says that another rule accepts packets of the gateway port.
	named bool
}

// parse reads the listing of the table filter.
func (h head) parse(out string) (*listed, error) {
	in, leads, always := &listed{}, map[string][]string{}, map[string][]string{}
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, ":"+h.chain+" "):
			in.drops = !strings.HasPrefix(line, ":"+h.chain+" ACCEPT ")
			in.blocks = in.drops
		case strings.HasPrefix(line, "-A "):
			chain, text, _ := strings.Cut(line[len("-A "):], " ")
			to := ruleTarget(text)
			if chain == h.chain {
				in.rules = append(in.rules, text)
				if strings.HasPrefix(to, Prefix) {
					in.entries = len(in.rules)
				}
				if h.isOurs(text) {
					in.ours = append(in.ours, text)
					continue
				}
			}
			in.named = in.named || to == "ACCEPT" && strings.Contains(text, " "+model.GatewayPort+" ")
			if leads[chain] = append(leads[chain], to); unconditional(text) {
				always[chain] = append(always[chain], to)
			}
		case strings.HasPrefix(line, "# Table `") && strings.Contains(line, "is incompatible"):
			return nil, tableFilter.incompatible()
		}
	}
	in.drops = in.drops || reaches(leads, h.chain, "DROP", "REJECT", "QUEUE", "NFQUEUE")
	in.blocks = in.blocks || reaches(always, h.chain, "DROP", "REJECT")
	return in, nil
}

// reaches reports whether a chain leads to one of the targets, by rules that have each target of their chain.
func reaches(leads map[string][]string, from string, targets ...string) bool {
	seen := map[string]bool{from: true}
	for todo := []string{from}; len(todo) > 0; todo = todo[1:] {
		for _, to := range leads[todo[0]] {
			if slices.Contains(targets, to) {
				return true
			}
			if !seen[to] {
				seen[to] = true
				todo = append(todo, to)
			}
		}
	}
	return false
}

// unconditional reports whether the rule of a listing matches each packet: it begins with its target, maybe behind a comment.
func unconditional(text string) bool {
	words := Words(text)
	if len(words) > 4 && words[0] == "-m" && words[1] == "comment" && words[2] == "--comment" {
		words = words[4:]
	}
	return len(words) > 0 && (words[0] == "-j" || words[0] == "-g")
}

// isOurs reports whether the rule of a listing is one of HeadRules.
func (h head) isOurs(text string) bool { return strings.Contains(text, "--comment "+quote(h.comment)) }

// isHeadRule reports whether a rule of the table filter is one of HeadRules.
func isHeadRule(chain, text string) bool {
	return slices.ContainsFunc([]head{inputHead(), forwardHead()}, func(h head) bool { return chain == h.chain && h.isOurs(text) })
}

// ruleTarget returns the target of a rule.
func ruleTarget(text string) string {
	target, _ := targetIn(Words(text))
	return target
}

// targetIn returns the target of a rule, by its words, and whether the packet does not come back from it.
func targetIn(words []string) (target string, isGoto bool) {
	// From the end: a comment, which comes before, may say "-j" as well.
	for i := len(words) - 2; i >= 0; i-- {
		if words[i] == "-j" || words[i] == "-g" {
			return words[i+1], words[i] == "-g"
		}
	}
	return "", false
}

// script returns the input of iptables-restore that keeps the rules where they are needed, or "". They are behind those of the backend in this
// variant, which decide about all packets of pods.
func (h head) script(in *listed) string {
	needed := h.needed(in) && len(h.texts) > 0
	switch {
	case !needed && len(in.ours) == 0,
		needed && slices.Equal(in.ours, h.texts) && slices.Equal(in.rules[in.entries:min(len(in.rules), in.entries+len(h.texts))], h.texts):
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n", tableFilter)
	for _, old := range in.ours {
		fmt.Fprintf(&b, "-D %s %s\n", h.chain, old)
	}
	if needed {
		for i, text := range h.texts {
			fmt.Fprintf(&b, "-I %s %d %s\n", h.chain, in.entries+i+1, text)
		}
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// WatchNFT calls changed when the chain of the nft variant has changed, and when it begins to watch, until ctx ends. It
// misses changes of the chains that it leads to.
func (r *HeadRules) WatchNFT(ctx context.Context, changed func()) error {
	l, err := nfnetlink.Listen(r.netns, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // the next Apply reads
	defer l.Until(ctx)()
	r.notice(changed)
	for {
		all, err := l.Receive()
		if err != nil {
			return err
		}
		noticed := false
		for n := range all {
			noticed = noticed || r.head.concerns(n)
		}
		if noticed {
			r.notice(changed)
		}
	}
}

func (r *HeadRules) notice(changed func()) {
	r.Invalidate()
	changed()
}

// concerns reports whether a notification is about the chain or a rule of it, or about the table filter. Proxies
// write the other chains of the table all the time.
func (h head) concerns(n nfnetlink.Notification) bool {
	if n.Family != unix.NFPROTO_IPV4 && n.Family != unix.NFPROTO_IPV6 {
		return false
	}
	at, known := chainAttribute(n.Kind)
	if !known {
		return false
	}
	filter, ours := false, at == 0
	for kind, v := range nfnetlink.Attributes(n.Attributes) {
		switch kind {
		case tableAttribute:
			filter = nfnetlink.Text(v) == tableFilter.String()
		case at:
			ours = nfnetlink.Text(v) == h.chain
		}
	}
	return filter && ours
}

// headLook is the time between two looks at the legacy variant, which has no notifications.
const headLook = 2 * time.Second

// WatchLegacy calls changed when the size of the legacy variant's table filter has changed, until ctx ends. It misses a
// change of a policy, and of one rule for another of its size.
func (r *HeadRules) WatchLegacy(ctx context.Context, changed func()) error {
	sizes, last := map[model.Family]*tableSizes{}, map[model.Family]info{}
	defer func() {
		for _, s := range sizes {
			s.close()
		}
	}()
	tick := time.NewTicker(headLook)
	defer tick.Stop()
	for {
		noticed := false
		for _, f := range model.Families() {
			now, err := r.legacySize(f, sizes)
			if err != nil {
				return err
			}
			noticed = noticed || now != last[f]
			last[f] = now
		}
		if noticed {
			r.notice(changed)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// legacySize returns the size of a family's table filter, the zero info if the kernel has none. It opens the sockets when they are
// first needed: without IPv6 there is none.
func (r *HeadRules) legacySize(f model.Family, sizes map[model.Family]*tableSizes) (info, error) {
	if used, err := usesLegacyFilter(f, r.netns); err != nil || !used {
		return info{}, err
	}
	if sizes[f] == nil {
		s, err := openSizes(r.netns, []model.Family{f})
		if err != nil {
			return info{}, err
		}
		sizes[f] = s
	}
	now, code := sizeOf(sizes[f].sockets[f], levelOf(f), tableFilter.String())
	if code != 0 {
		return info{}, fmt.Errorf("ask for the size of table %s of IPv%s: %w", tableFilter, f, code)
	}
	return now, nil
}
