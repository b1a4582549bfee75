package iptables

import (
	"errors"
	"fmt"
	"strings"

	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// The text of a rule is the output of iptables-save for it, without the command and
// the chain. So the driver compares a rule that it has read with the desired one by
// text. Both variants and both families print the same (iptables 1.8.9).

// interfaceChars are the characters that names of interfaces may have besides
// letters and digits; '+' at the end would be a wildcard.
const interfaceChars = "._-@:"

// checkText refuses rules that the text cannot express.
func checkText(r tables.Rule) error {
	var h header
	transport := 0
	for _, m := range r.Matches {
		var err error
		switch m := m.(type) {
		case tables.MatchProtocol:
			err = h.take(&h.protocol, "protocol", m.String())
		case tables.MatchPrefix:
			err = h.take(h.address(m.Side), "prefix of the "+m.Side.String(), m.String())
		case tables.MatchInterface:
			err = errors.Join(checkInterface(m.Name), h.take(h.device(m.Side), "interface on one side", m.String()))
		case tables.MatchDestinationPorts, tables.MatchSYN, tables.MatchICMP:
			// All are options of the protocol's module.
			if transport++; transport > 1 {
				err = errors.New("iptables takes one match on destination ports, on SYN, or on a type of ICMP, in a rule")
			}
		case tables.MatchLocal, tables.MatchForwarded, tables.MatchConnSource, tables.MatchConnDNAT, tables.MatchLoop, tables.MatchSender, tables.MatchGrant,
			tables.MatchEtherType, tables.MatchHopLimit, tables.MatchReset:
			err = fmt.Errorf("only the nftables driver matches %q", m)
		}
		if err != nil {
			return err
		}
	}
	switch a := r.Action.(type) {
	case tables.Reject:
		if a.With == tables.AdminProhibited && r.Family() == 0 {
			return errors.New("the names of ICMP errors differ between iptables and ip6tables: the rule needs a family")
		}
	case tables.Dispatch:
		return errors.New("iptables has no verdict maps: dispatch has to be a tree of chains")
	case tables.SourceNAT:
		return fmt.Errorf("only the nftables driver has the action %q", r.Action)
	}
	return nil
}

func checkInterface(name string) error {
	name = strings.TrimSuffix(name, "*")
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(interfaceChars, c) {
			return fmt.Errorf("the interface name %q has a character %q that iptables does not take", name, c)
		}
	}
	return nil
}

// header holds the matches that iptables has without a match module. Each occurs at
// most once in a rule. iptables prints them in this order.
type header struct {
	source, destination, in, out, protocol string
}

// take stores the text of a field, which must be empty yet.
func (h *header) take(field *string, what, text string) error {
	if *field != "" {
		return fmt.Errorf("iptables takes one match on the %s in a rule", what)
	}
	*field = text
	return nil
}

func (h *header) address(s tables.Side) *string {
	if s == tables.Source {
		return &h.source
	}
	return &h.destination
}

func (h *header) device(s tables.Side) *string {
	if s == tables.Source {
		return &h.in
	}
	return &h.out
}

// render returns the text of a rule with the hash. It is the caller's to have
// checked it.
func render(r tables.Rule, hash string) string {
	return naming{chain: KernelName, set: ipsets.KernelName}.render(r, hash)
}

// Text returns the text of a rule that names chains and sets by their kernel names
// already. Without a hash it has only the readable comment, if there is one.
func Text(r tables.Rule, hash string) (string, error) {
	same := func(name string) string { return name }
	if err := checkText(r); err != nil {
		return "", err
	}
	return naming{chain: same, set: same}.render(r, hash), nil
}

// naming gives chains and sets the names that they have in the kernel.
type naming struct{ chain, set func(string) string }

func (n naming) render(r tables.Rule, hash string) string {
	var h header
	var modules, connmarks strings.Builder
	for _, m := range r.Matches {
		switch m := m.(type) {
		case tables.MatchConnMark:
			// Behind all matches on the packet's mark: the tools take the option
			// --mark for that of the module which they have loaded last.
			connmarks.WriteString("-m connmark --mark " + masked(m.Value, m.Mask) + " ")
		case tables.MatchProtocol:
			h.protocol = not(m.Negated) + "-p " + protocol(m.Protocol) + " "
		case tables.MatchPrefix:
			// Every packet has an address: the tools do not print it.
			if m.Prefix.Bits() > 0 {
				*h.address(m.Side) = not(m.Negated) + option(m.Side, "-s ", "-d ") + m.Prefix.String() + " "
			}
		case tables.MatchInterface:
			name, wildcard := strings.CutSuffix(m.Name, "*")
			if wildcard {
				name += "+"
			}
			*h.device(m.Side) = not(m.Negated) + option(m.Side, "-i ", "-o ") + name + " "
		default:
			modules.WriteString(n.module(m, r))
		}
	}
	switch a := r.Action.(type) {
	case tables.Report:
		modules.WriteString(limit(a.PerSecond))
	case tables.Reject:
		modules.WriteString(limit(a.PerSecond))
	}
	text := h.source + h.destination + h.in + h.out + h.protocol + modules.String() + connmarks.String()
	return text + comments(hash, r.Comment) + n.action(r)
}

// translated are the states of a connection with a rewritten source or destination (iptables-extensions, conntrack).
const translated = "SNAT,DNAT"

// module returns the text of a match that a module of its own does.
func (n naming) module(m tables.Match, r tables.Rule) string {
	switch m := m.(type) {
	case tables.MatchDestinationPorts:
		return portMatch(m, r)
	case tables.MatchSYN:
		return "-m tcp " + not(m.Negated) + "--tcp-flags FIN,SYN,RST,ACK SYN "
	case tables.MatchICMP:
		return icmpMatch(m, r.Family())
	case tables.MatchSet:
		return fmt.Sprintf("-m set --match-set %s %s ", n.set(m.Set), m.Side)
	case tables.MatchPortSet:
		return fmt.Sprintf("-m set --match-set %s dst,dst ", n.set(m.Set))
	case tables.MatchConnState:
		return "-m conntrack --ctstate " + states(m.States) + " "
	case tables.MatchConnOriginal:
		return "-m conntrack --ctdir ORIGINAL "
	case tables.MatchConnTranslated:
		return "-m conntrack --ctstate " + translated + " "
	case tables.MatchMark:
		return "-m mark " + not(m.Negated) + "--mark " + masked(m.Value, m.Mask) + " "
	}
	return ""
}

// limit is the part of a report or an answer that bounds it. The tools do not print a
// burst of 5, which is their own.
func limit(perSecond uint32) string {
	text := fmt.Sprintf("-m limit --limit %d/sec ", perSecond)
	if perSecond != defaultBurst {
		text += fmt.Sprintf("--limit-burst %d ", perSecond)
	}
	return text
}

const defaultBurst = 5

func masked(value, mask uint32) string {
	if mask == ^uint32(0) {
		return fmt.Sprintf("%#x", value)
	}
	return fmt.Sprintf("%#x/%#x", value, mask)
}

// portMatch needs the protocol that the rule matches as well. All ports is a match
// all the same: it fails for a packet without a transport header.
func portMatch(m tables.MatchDestinationPorts, r tables.Rule) string {
	name := ""
	for _, other := range r.Matches {
		if p, ok := other.(tables.MatchProtocol); ok {
			name = protocol(p.Protocol)
		}
	}
	switch {
	case m.First == m.Last:
		return fmt.Sprintf("-m %s --dport %d ", name, m.First)
	case m.First == 0 && m.Last == 65535:
		return fmt.Sprintf("-m %s ", name)
	}
	return fmt.Sprintf("-m %s --dport %d:%d ", name, m.First, m.Last)
}

func icmpMatch(m tables.MatchICMP, f model.Family) string {
	value := fmt.Sprint(m.Type)
	if !m.AnyCode {
		value += fmt.Sprintf("/%d", m.Code)
	}
	if f == model.IPv6 {
		return "-m icmp6 --icmpv6-type " + value + " "
	}
	return "-m icmp --icmp-type " + value + " "
}

// comments returns the two comments: the hash, and the purpose of the rule.
func comments(hash, readable string) string {
	text := ""
	if hash != "" {
		text = "-m comment --comment " + quote(tables.CommentPrefix+hash) + " "
	}
	if readable != "" {
		text += "-m comment --comment " + quote(readable) + " "
	}
	return text
}

func (n naming) action(r tables.Rule) string {
	switch a := r.Action.(type) {
	case tables.Accept:
		return "-j ACCEPT"
	case tables.Drop:
		return "-j DROP"
	case tables.Return:
		return "-j RETURN"
	case tables.Jump:
		return "-j " + n.chain(a.Chain)
	case tables.Goto:
		return "-g " + n.chain(a.Chain)
	case tables.SetMark:
		return fmt.Sprintf("-j MARK --set-xmark %#x/%#x", a.Value, a.Mask)
	case tables.SetConnMark:
		return fmt.Sprintf("-j CONNMARK --set-xmark %#x/%#x", a.Value, a.Mask)
	case tables.Report:
		return fmt.Sprintf("-j NFLOG --nflog-prefix %s --nflog-group %d --nflog-size %d", a.Prefix, a.Group, a.Length)
	case tables.Reject:
		return "-j REJECT --reject-with " + rejectWith(a.With, r.Family())
	case tables.Masquerade:
		return "-j MASQUERADE"
	case tables.KeepSource:
		// ACCEPT ends the table: later rules of other programs in it do not see the
		// connection. NETMAP to all addresses would bind it for the tables of other
		// programs, too, but not every kernel has that.
		return "-j ACCEPT"
	}
	return ""
}

func rejectWith(a tables.Answer, f model.Family) string {
	switch {
	case a == tables.TCPReset:
		return "tcp-reset"
	case f == model.IPv6:
		return "icmp6-adm-prohibited"
	}
	return "icmp-admin-prohibited"
}

// states lists connection states in the order in which the tools print them.
func states(s tables.ConnState) string {
	var names []string
	for _, n := range []struct {
		state tables.ConnState
		name  string
	}{
		{tables.StateInvalid, "INVALID"},
		{tables.StateNew, "NEW"},
		{tables.StateRelated, "RELATED"},
		{tables.StateEstablished, "ESTABLISHED"},
		{tables.StateUntracked, "UNTRACKED"},
	} {
		if s&n.state != 0 {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, ",")
}

func option(s tables.Side, source, destination string) string {
	if s == tables.Source {
		return source
	}
	return destination
}

func not(negated bool) string {
	if negated {
		return "! "
	}
	return ""
}
