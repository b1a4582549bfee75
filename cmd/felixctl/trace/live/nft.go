package live

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/felixlike/felixlike/cmd/felixctl/trace"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// tracePrefix begins the name of the nftables table that has the kernel trace one
// packet; the number of the process ends it.
const tracePrefix = "flx-trace-"

// nftTrace reads the trace of nf_tables for the packets that its rule marks.
type nftTrace struct {
	node  Node
	guard *guard
	cmd   *exec.Cmd
	input io.Closer
	done  chan struct{}
	mu    sync.Mutex
	lines []string
}

// startNFT has the kernel trace the packet, and listens.
func startNFT(ctx context.Context, n Node, p trace.Packet) (_ *nftTrace, err error) {
	if err := removeLeftovers(ctx, n); err != nil {
		return nil, err
	}
	t := &nftTrace{node: n, done: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.end())
		}
	}()
	if err := t.listen(ctx); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s%d", tracePrefix, os.Getpid())
	rule := fmt.Sprintf("%s meta nftrace set 1", nftMatch(p))
	setup := "nft add table inet " + name
	for _, hook := range []string{"prerouting", "output"} {
		setup += fmt.Sprintf(` && nft "add chain inet %[1]s %[2]s { type filter hook %[2]s priority -500; }" && nft "add rule inet %[1]s %[2]s %[3]s"`, name, hook, rule)
	}
	t.guard, err = startGuard(ctx, n, setup, "nft delete table inet "+name)
	return t, err
}

// nftMatch matches the packet and no other one.
func nftMatch(p trace.Packet) string {
	ip, proto := "ip", p.Protocol.String()
	if p.Family() == model.IPv6 {
		ip = "ip6"
	}
	match := fmt.Sprintf("%s saddr %s %s daddr %s ", ip, p.Source, ip, p.Destination)
	if p.Protocol.IsICMP() {
		kind, code := message(p)
		// The id by its place: for nft, only messages of echo have one.
		return match + fmt.Sprintf("%[1]s type %[2]d %[1]s code %[3]d @th,32,16 %[4]d", proto, kind, code, p.SourcePort)
	}
	return match + fmt.Sprintf("%s sport %d %s dport %d", proto, p.SourcePort, proto, p.Port)
}

// removeLeftovers removes the tables of processes that have ended without.
func removeLeftovers(ctx context.Context, n Node) error {
	out, err := n.Run(ctx, "nft", "list", "tables", "inet")
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if len(words) == 3 && leftover(words[2], tracePrefix) {
			if _, err := n.Run(ctx, "nft", "delete", "table", "inet", words[2]); err != nil {
				return err
			}
		}
	}
	return nil
}

// listen starts `nft monitor trace` and returns when it is subscribed. A shell ends it
// when this process ends, as a guard does.
func (t *nftTrace) listen(ctx context.Context) error {
	const script = "trap '' INT TERM HUP; nft monitor trace & M=$!; trap 'kill -9 $M' EXIT; echo $M; cat >/dev/null"
	t.cmd = exec.Command("sh", "-c", script)
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := t.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if t.input, err = t.cmd.StdinPipe(); err != nil {
		return err
	}
	if err := t.node.start(t.cmd); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	pid := 0
	if lines.Scan() {
		pid, _ = strconv.Atoi(lines.Text()) // a shell prints numbers there
	}
	go func() {
		defer close(t.done)
		for lines.Scan() {
			t.mu.Lock()
			t.lines = append(t.lines, lines.Text())
			t.mu.Unlock()
		}
	}()
	const traces = 0x100 // the bit of NFNLGRP_NFTRACE
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if subscribed(pid, traces) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: nft monitor trace does not listen", t.node.Name)
		}
	}
}

// subscribed reports whether the process has a netlink socket in the groups.
func subscribed(pid int, groups uint32) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/netlink", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		var socket string
		var protocol, port int
		var mask uint32
		// sk, protocol, port id, groups; NETLINK_NETFILTER is 12.
		if _, err := fmt.Sscanf(line, "%s %d %d %x", &socket, &protocol, &port, &mask); err == nil && protocol == 12 && port == pid && mask&groups != 0 {
			return true
		}
	}
	return false
}

// end stops listening and removes the rule.
func (t *nftTrace) end() error {
	var err error
	if t.guard != nil {
		err = t.guard.end()
	}
	if t.cmd != nil && t.cmd.Process != nil {
		_ = t.input.Close()
		<-t.done
		err = errors.Join(err, t.cmd.Wait())
	}
	return err
}

// steps are the steps so far.
func (t *nftTrace) steps() []trace.Step {
	t.mu.Lock()
	defer t.mu.Unlock()
	return parseNFT(t.node.Name, t.lines)
}

// parseNFT parses the output of `nft monitor trace` for the first packet.
func parseNFT(node string, lines []string) []trace.Step {
	event := regexp.MustCompile(`^trace id (\w+) (\w+) (\S+) (\S+) (rule|verdict|policy) (.*)$`)
	comment := regexp.MustCompile(` comment "([^"]*)"`)
	counter := regexp.MustCompile(` ?counter packets \d+ bytes \d+`)
	var steps []trace.Step
	id := ""
	for _, line := range lines {
		m := event.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil || strings.HasPrefix(m[3], tracePrefix) {
			continue
		}
		if id == "" {
			id = m[1]
		}
		if m[1] != id {
			continue // sent again
		}
		s := trace.Step{Node: node, Place: fmt.Sprintf("nftables %s %s", m[2], m[3]), Table: "chain " + m[4]}
		switch m[5] {
		case "policy":
			s.Effect = "end of the chain: " + firstWord(m[6])
		case "verdict":
			s.Effect = m[6]
		default:
			text, verdict, _ := strings.Cut(m[6], " (verdict ")
			s.Effect = strings.TrimSuffix(verdict, ")")
			if c := comment.FindStringSubmatch(text); c != nil {
				text = strings.Replace(text, c[0], "", 1)
				s.Comment = readable(c[1])
				s.Policy, s.PolicyRule = trace.Behind(s.Comment)
			}
			s.Rule = strings.TrimSpace(counter.ReplaceAllString(text, ""))
		}
		steps = append(steps, s)
	}
	return steps
}

// readable is a kernel comment without the hash.
func readable(comment string) string {
	if hash := tables.HashInComment(comment); hash != "" {
		comment = strings.TrimSpace(strings.TrimPrefix(comment, tables.CommentPrefix+hash))
	}
	return comment
}

func firstWord(s string) string {
	word, _, _ := strings.Cut(strings.TrimSpace(s), " ")
	return word
}

// ruledOut reports whether a step is the end of the packet.
func ruledOut(s trace.Step) bool {
	return s.Effect == "drop" || strings.HasSuffix(s.Effect, ": drop")
}
