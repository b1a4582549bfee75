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

// inputComment marks the rule of InputRule. It has no hash: the rule leads to no chain of ours.
const inputComment = "felixlike tunnel packets of nodes"

// InputRule keeps one rule at the head of INPUT (table filter), in each variant and family whose INPUT may drop packets.
// The rule accepts packets to a UDP port that have a mark. Only one goroutine may call Apply; Watch and Invalidate
// may run in others.
type InputRule struct {
	netns   int
	text    string
	trusted atomic.Bool
	hidden  bool
}

// Hidden reports whether iptables cannot show INPUT of the nft variant, because another program has written to the table
// with nft. Then the rule cannot be kept there. It may be called where Apply is.
func (r *InputRule) Hidden() bool { return r.hidden }

// NewInputRule returns the rule for a port and a mark, which replaces the rule for other ones. netns is a descriptor as
// in Options.
func NewInputRule(port uint16, mark uint32, netns int) *InputRule {
	return &InputRule{netns: netns, text: fmt.Sprintf("-p udp -m udp --dport %d -m mark --mark %#x/%#[2]x -m comment --comment %s -j ACCEPT", port, mark, quote(inputComment))}
}

// Invalidate makes the next Apply read INPUT.
func (r *InputRule) Invalidate() { r.trusted.Store(false) }

// Apply inserts the rule where INPUT may drop packets, and removes it elsewhere. It reads nothing if nothing was noticed
// since the last Apply. It returns the number of written tables.
func (r *InputRule) Apply(ctx context.Context) (writes int, err error) {
	if r.trusted.Swap(true) {
		return 0, nil
	}
	writes, err = applyInput(ctx, r.netns, r.text)
	if r.hidden = errors.Is(err, errIncompatible); r.hidden {
		err = nil
	}
	if err != nil {
		r.Invalidate()
	}
	return writes, err
}

// RemoveInputRule removes the rule of any InputRule.
func RemoveInputRule(ctx context.Context, netns int) error {
	_, err := applyInput(ctx, netns, "")
	if errors.Is(err, errIncompatible) {
		return nil // the rule was never there
	}
	return err
}

// applyInput keeps the rule in both variants and families, or removes it if the text is empty.
func applyInput(ctx context.Context, netns int, text string) (writes int, err error) {
	var errs []error
	for _, v := range []Variant{Legacy, NFT} {
		for _, f := range model.Families() {
			wrote, err := inputOf(ctx, v, f, netns, text)
			if err != nil {
				errs = append(errs, fmt.Errorf("INPUT of iptables (%s, IPv%s): %w", v, f, err))
			}
			if wrote {
				writes++
			}
		}
	}
	return writes, errors.Join(errs...)
}

func inputOf(ctx context.Context, v Variant, f model.Family, netns int, text string) (wrote bool, err error) {
	// Most nodes use one variant, or none. Then no program is started, and no module loaded for a table that nobody uses.
	uses := usesNFTFilter
	if v == Legacy {
		uses = usesLegacyFilter
	}
	if used, err := uses(f, netns); err != nil || !used {
		return false, err
	}
	t := newTools(v, []model.Family{f}, netns)
	if err := t.find(ctx); errors.Is(err, exec.ErrNotFound) {
		return false, nil // without the tools there is no rule of ours, and nobody else's either
	} else if err != nil {
		return false, err
	}
	out, err := t.dump(ctx, f, "-t", tableFilter.String())
	if err != nil {
		return false, err
	}
	in, err := parseInput(string(out))
	if err != nil {
		return false, err
	}
	script := in.script(text)
	if script == "" {
		return false, nil
	}
	return true, t.load(ctx, f, []byte(script))
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

// input is INPUT as iptables-save shows it.
type input struct {
	// rules are those of INPUT; ours are the texts of InputRule's among them.
	rules, ours []string
	// drops says that a packet that comes into INPUT may be dropped there or in a chain that it leads to.
	drops bool
}

// parseInput reads the listing of the table filter.
func parseInput(out string) (*input, error) {
	in, leads := &input{}, map[string][]string{}
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, ":INPUT "):
			in.drops = !strings.HasPrefix(line, ":INPUT ACCEPT ")
		case strings.HasPrefix(line, "-A "):
			chain, text, _ := strings.Cut(line[len("-A "):], " ")
			if chain == "INPUT" {
				in.rules = append(in.rules, text)
				if isInputRule(text) {
					in.ours = append(in.ours, text)
					continue
				}
			}
			leads[chain] = append(leads[chain], ruleTarget(text))
		case strings.HasPrefix(line, "# Table `") && strings.Contains(line, "is incompatible"):
			return nil, tableFilter.incompatible()
		}
	}
	seen := map[string]bool{"INPUT": true}
	for todo := []string{"INPUT"}; len(todo) > 0; todo = todo[1:] {
		for _, to := range leads[todo[0]] {
			in.drops = in.drops || slices.Contains([]string{"DROP", "REJECT", "QUEUE", "NFQUEUE"}, to)
			if !seen[to] {
				seen[to] = true
				todo = append(todo, to)
			}
		}
	}
	return in, nil
}

// isInputRule reports whether the rule of a listing is one of InputRule.
func isInputRule(text string) bool { return strings.Contains(text, "--comment "+quote(inputComment)) }

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

// script returns the input of iptables-restore that keeps the rule where it is needed, or "".
func (in *input) script(text string) string {
	needed := in.drops && text != ""
	switch {
	case !needed && len(in.ours) == 0,
		needed && len(in.ours) == 1 && in.rules[0] == text:
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n", tableFilter)
	for _, old := range in.ours {
		fmt.Fprintf(&b, "-D INPUT %s\n", old)
	}
	if needed {
		fmt.Fprintf(&b, "-I INPUT 1 %s\n", text)
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// WatchNFT calls changed when INPUT of the nft variant has changed, and when it begins to watch, until ctx ends. It
// misses changes of the chains that INPUT leads to.
func (r *InputRule) WatchNFT(ctx context.Context, changed func()) error {
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
			noticed = noticed || concernsInput(n)
		}
		if noticed {
			r.notice(changed)
		}
	}
}

func (r *InputRule) notice(changed func()) {
	r.Invalidate()
	changed()
}

// concernsInput reports whether a notification is about INPUT or a rule of it, or about the table filter. Proxies
// write the other chains of the table all the time.
func concernsInput(n nfnetlink.Notification) bool {
	if n.Family != unix.NFPROTO_IPV4 && n.Family != unix.NFPROTO_IPV6 {
		return false
	}
	at, known := chainAttribute(n.Kind)
	if !known {
		return false
	}
	filter, input := false, at == 0
	for kind, v := range nfnetlink.Attributes(n.Attributes) {
		switch kind {
		case tableAttribute:
			filter = nfnetlink.Text(v) == tableFilter.String()
		case at:
			input = nfnetlink.Text(v) == "INPUT"
		}
	}
	return filter && input
}

// inputLook is the time between two looks at the legacy variant, which has no notifications.
const inputLook = 2 * time.Second

// WatchLegacy calls changed when the size of the legacy variant's table filter has changed, until ctx ends. It misses a
// change of a policy, and of one rule for another of its size.
func (r *InputRule) WatchLegacy(ctx context.Context, changed func()) error {
	sizes, last := map[model.Family]*tableSizes{}, map[model.Family]info{}
	defer func() {
		for _, s := range sizes {
			s.close()
		}
	}()
	tick := time.NewTicker(inputLook)
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
func (r *InputRule) legacySize(f model.Family, sizes map[model.Family]*tableSizes) (info, error) {
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
