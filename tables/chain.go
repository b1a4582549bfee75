package tables

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// CommentPrefix begins the comment of every rule that is ours.
const CommentPrefix = "flx:"

// hashLength is the number of base64 characters of a rule's hash: 132 bits. The author of a
// policy chooses the content of rules; to find two with one hash takes 2^66 tries.
const hashLength = 22

// Rule is one rule of a chain. Rules are evaluated in order.
type Rule struct {
	Matches []Match
	Action  Action
	// Comment says in words where the rule comes from (policy and rule). It
	// is part of the hash, so a renamed rule is written anew.
	Comment string
}

// String renders matches and action canonically, without the comment. A missing action is rendered as "none":
// drivers refuse such a rule, and have to name it.
func (r Rule) String() string { return text(r) }

func (r Rule) appendTo(b []byte) []byte {
	for _, m := range r.Matches {
		if m == nil {
			b = append(b, "none "...)
			continue
		}
		b = append(m.appendTo(b), ' ')
	}
	if r.Action == nil {
		return append(b, "none"...)
	}
	return r.Action.appendTo(b)
}

// Hash returns the hash of this rule's own content: equal rules have equal
// hashes wherever they stand, and an edit of one rule changes one hash.
func (r Rule) Hash() string {
	hash, _ := r.appendHash(make([]byte, 0, hashLength), make([]byte, 0, 256))
	return string(hash)
}

// Hashes returns the hashes of the chain's rules.
func (c *Chain) Hashes() []string {
	hashes, buffer := make([]byte, 0, hashLength*len(c.Rules)), make([]byte, 0, 512)
	for _, r := range c.Rules {
		hashes, buffer = r.appendHash(hashes, buffer[:0])
	}
	all, out := string(hashes), make([]string, len(c.Rules))
	for i := range out {
		out[i] = all[i*hashLength : (i+1)*hashLength]
	}
	return out
}

// appendHash appends the hash to b. It needs an empty buffer, and returns it for
// the next rule.
func (r Rule) appendHash(b, buffer []byte) (hash, used []byte) {
	buffer = append(r.appendTo(buffer), 0)
	buffer = append(buffer, r.Comment...)
	sum := sha256.Sum256(buffer)
	var digits [hashLength + 2]byte // 18 bytes make 24 characters
	base64.RawURLEncoding.Encode(digits[:], sum[:18])
	return append(b, digits[:hashLength]...), buffer
}

// KernelComment returns the rule's comment in the kernel: the prefix, the hash, and the readable comment cut
// to 128 bytes, which fit both nft's userdata and iptables' comment match.
func (r Rule) KernelComment() string {
	return string(AppendKernelComment(nil, r.Hash(), r.Comment))
}

// AppendKernelComment appends to b the KernelComment of a rule with the hash
// and the comment.
func AppendKernelComment(b []byte, hash, comment string) []byte {
	at := len(b)
	b = append(append(b, CommentPrefix...), hash...)
	if comment != "" {
		b = append(append(b, ' '), comment...)
	}
	if len(b)-at > maxComment {
		b = append(b[:at], bytes.ToValidUTF8(b[at:at+maxComment], nil)...)
	}
	return b
}

const maxComment = 128

// HashInComment returns the hash inside a kernel comment, or "" if the
// comment is not ours.
func HashInComment(comment string) string {
	rest, ok := strings.CutPrefix(comment, CommentPrefix)
	if !ok {
		return ""
	}
	hash, _, _ := strings.Cut(rest, " ")
	return hash
}

// HookType is the kind of base chain (nft chain type; iptables table).
type HookType uint8

// Base chain types.
const (
	HookFilter HookType = iota + 1
	HookNAT
)

// HookPoint is where a base chain sits in netfilter.
type HookPoint uint8

// The hooks that are used. Policy decides in HookForward, and in HookInput about packets of pods to
// their own node.
const (
	HookForward HookPoint = iota + 1
	HookPostrouting
	HookPrerouting
	HookInput
	// HookOutput has the packets that the node sends.
	HookOutput
)

// Hook makes a chain a base chain. Its default verdict is accept: it sees the whole host's traffic, and
// decides only about pods of this node.
type Hook struct {
	Type  HookType
	Point HookPoint
	// Priority orders base chains at one hook (nft: raw -300, filter 0, srcnat 100).
	Priority int32
}

// Chain is a named list of rules, and a base chain if Hook is not nil.
type Chain struct {
	Name  string
	Hook  *Hook
	Rules []Rule
	// Origin is not programmed.
	Origin Origin
}

// References returns the chains that the rules jump or go to, each once, in
// order of first use.
func (c *Chain) References() []string {
	var names []string
	seen := map[string]bool{}
	for _, r := range c.Rules {
		if name := Target(r.Action); name != "" && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// Target returns the chain that an action jumps or goes to, or "".
func Target(a Action) string {
	switch a := a.(type) {
	case Jump:
		return a.Chain
	case Goto:
		return a.Chain
	}
	return ""
}

// Text renders the chain for people and golden tests: one rule a line with
// its comment behind a '#'.
func (c *Chain) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "chain %s", c.Name)
	if c.Hook != nil {
		fmt.Fprintf(&b, " (hook %s %s %d)", c.Hook.Type, c.Hook.Point, c.Hook.Priority)
	}
	b.WriteByte('\n')
	for _, r := range c.Rules {
		fmt.Fprintf(&b, "  %s", r)
		if r.Comment != "" {
			fmt.Fprintf(&b, "  # %s", r.Comment)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// String returns nft's name of the chain type.
func (t HookType) String() string {
	switch t {
	case HookFilter:
		return "filter"
	case HookNAT:
		return "nat"
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

// String returns nft's name of the hook.
func (p HookPoint) String() string {
	switch p {
	case HookForward:
		return "forward"
	case HookPostrouting:
		return "postrouting"
	case HookPrerouting:
		return "prerouting"
	case HookInput:
		return "input"
	case HookOutput:
		return "output"
	}
	return fmt.Sprintf("hook(%d)", uint8(p))
}
