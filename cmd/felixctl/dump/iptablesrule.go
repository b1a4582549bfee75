package dump

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
	"github.com/felixlike/felixlike/tables/iptables"
)

// savedText reads a rule in the words of iptables-save, as far as it is of our
// forms.
type savedText struct {
	words  []string
	rule   Rule
	family model.Family
	chains map[string]*Chain
	// module is the one that -m has loaded last.
	module string
	// limit and burst bound the reports or answers of a rule; both are empty without a limit.
	limit, burst string
}

func parseSavedRule(text string, f model.Family, chains map[string]*Chain) Rule {
	p := savedText{words: iptables.Words(text), family: f, chains: chains}
	p.takeComments()
	foreign := savedWords(p.words)
	if err := p.all(); err != nil {
		p.rule.Matches, p.rule.Action, p.rule.Foreign = nil, nil, cmp.Or(foreign, "counter")
	}
	return p.rule
}

// savedWords joins words so that the tools would read them as they are.
func savedWords(words []string) string {
	out := make([]string, len(words))
	for i, w := range words {
		if out[i] = w; w == "" || strings.ContainsAny(w, " \"'\\") {
			out[i] = `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`, `'`, `\'`).Replace(w) + `"`
		}
	}
	return strings.Join(out, " ")
}

// takeComments removes all comments and keeps the hash and the purpose.
func (p *savedText) takeComments() {
	var rest, texts []string
	for i := 0; i < len(p.words); i++ {
		if i+3 < len(p.words) && p.words[i] == "-m" && p.words[i+1] == "comment" && p.words[i+2] == "--comment" {
			if text := p.words[i+3]; p.rule.Hash == "" && tables.HashInComment(text) != "" {
				p.rule.setComment(text)
				if p.rule.Comment != "" {
					texts = append(texts, p.rule.Comment)
				}
			} else {
				texts = append(texts, text)
			}
			i += 3
			continue
		}
		rest = append(rest, p.words[i])
	}
	p.words, p.rule.Comment = rest, strings.Join(texts, " ")
}

func (p *savedText) all() error {
	for len(p.words) > 0 {
		if p.rule.Action != nil {
			return errForeign
		}
		negated := p.words[0] == "!"
		if negated {
			p.words = p.words[1:]
		}
		if err := p.option(negated); err != nil {
			return err
		}
	}
	if p.rule.Action == nil {
		return errForeign
	}
	switch p.rule.Action.(type) {
	case tables.Report, tables.Reject:
	default:
		if p.limit != "" {
			return errForeign
		}
	}
	return p.rule.Check()
}

// value takes an option's value.
func (p *savedText) value() (string, error) {
	if len(p.words) == 0 {
		return "", errForeign
	}
	v := p.words[0]
	p.words = p.words[1:]
	return v, nil
}

func (p *savedText) option(negated bool) error {
	name, err := p.value()
	if err != nil {
		return err
	}
	value, err := p.value()
	if err != nil {
		return err
	}
	switch name {
	case "-s", "-d", "-i", "-o", "-p", "--mark", "--tcp-flags":
	default:
		if negated {
			return errForeign
		}
	}
	switch name {
	case "-s", "-d":
		return p.address(side(name == "-s"), value, negated)
	case "-i", "-o":
		return p.device(side(name == "-i"), value, negated)
	case "-p":
		return p.protocol(value, negated)
	case "-m":
		return p.load(value)
	case "--dport":
		return p.ports(value)
	case "--tcp-flags":
		return p.tcpFlags(value, negated)
	case "--icmp-type", "--icmpv6-type":
		return p.icmp(name, value)
	case "--match-set":
		return p.set(value)
	case "--ctstate":
		if value == "SNAT,DNAT" {
			return p.add(tables.MatchConnTranslated{})
		}
		states, err := parseStates(value)
		return cmp.Or(err, p.add(tables.MatchConnState{States: states}))
	case "--limit":
		p.limit, p.burst = value, savedBurst
		return nil
	case "--limit-burst":
		p.burst = value
		return foreignUnless(p.limit != "")
	case "--ctdir":
		return cmp.Or(foreignUnless(value == "ORIGINAL"), p.add(tables.MatchConnOriginal{}))
	case "--mark":
		return p.mark(value, negated)
	case "-j", "-g":
		return p.target(name == "-g", value)
	}
	return errForeign
}

func side(source bool) tables.Side { return either(source, tables.Source, tables.Destination) }

func (p *savedText) add(m tables.Match) error {
	p.rule.Matches = append(p.rule.Matches, m)
	return nil
}

func (p *savedText) address(s tables.Side, value string, negated bool) error {
	prefix, err := savedPrefix(value)
	if err != nil || model.FamilyOf(prefix.Addr()) != p.family {
		return errForeign
	}
	return p.add(tables.MatchPrefix{Side: s, Prefix: prefix, Negated: negated})
}

// savedPrefix reads "10.0.0.1/32", or as older tools print it, without a length or
// with a mask of ones.
func savedPrefix(value string) (netip.Prefix, error) {
	if address, mask, found := strings.Cut(value, "/"); found {
		if m, err := netip.ParseAddr(mask); err == nil {
			ones, bits := net.IPMask(m.AsSlice()).Size()
			a, err := netip.ParseAddr(address)
			if err != nil || bits == 0 {
				return netip.Prefix{}, errForeign
			}
			return parsePrefix(netip.PrefixFrom(a, ones).String())
		}
	}
	return parsePrefix(value)
}

func (p *savedText) device(s tables.Side, value string, negated bool) error {
	name, wildcard := strings.CutSuffix(value, "+")
	if strings.ContainsAny(name, "*+") {
		return errForeign
	}
	if wildcard {
		name += "*"
	}
	return p.add(tables.MatchInterface{Side: s, Name: name, Negated: negated})
}

func (p *savedText) protocol(value string, negated bool) error {
	n, err := parseProtocol(value)
	return cmp.Or(err, p.add(tables.MatchProtocol{Protocol: n, Negated: negated}))
}

// tcpFlags reads "FIN,SYN,RST,ACK SYN".
func (p *savedText) tcpFlags(mask string, negated bool) error {
	flags, err := p.value()
	if err != nil || mask != "FIN,SYN,RST,ACK" || flags != "SYN" || p.module != "tcp" {
		return errForeign
	}
	return p.add(tables.MatchSYN{Negated: negated})
}

// icmp reads "8" or "8/0".
func (p *savedText) icmp(option, value string) error {
	if p.module != either(option == "--icmp-type", "icmp", "icmp6") {
		return errForeign
	}
	kind, code, hasCode := strings.Cut(value, "/")
	m := tables.MatchICMP{AnyCode: !hasCode}
	var err1, err2 error
	m.Type, err1 = number8(kind)
	if hasCode {
		m.Code, err2 = number8(code)
	}
	return cmp.Or(foreignUnless(err1 == nil && err2 == nil), p.add(m))
}

// load takes the module of the options behind it. That of a protocol matches by
// itself: only packets that have ports.
func (p *savedText) load(name string) error {
	p.module = name
	switch name {
	case "tcp", "udp", "sctp":
		if len(p.words) > 1 && slices.Contains([]string{"--dport", "--tcp-flags"}, p.words[0]) ||
			len(p.words) > 2 && p.words[0] == "!" && p.words[1] == "--tcp-flags" {
			return nil
		}
		return p.add(tables.MatchDestinationPorts{First: 0, Last: 65535})
	case "set", "conntrack", "mark", "connmark", "limit", "icmp", "icmp6":
		return foreignUnless(len(p.words) > 0)
	}
	return errForeign
}

func (p *savedText) ports(value string) error {
	first, last, ranged := strings.Cut(value, ":")
	if !ranged {
		last = first
	}
	a, err1 := port(first)
	b, err2 := port(last)
	if err1 != nil || err2 != nil || !slices.Contains([]string{"tcp", "udp", "sctp"}, p.module) {
		return errForeign
	}
	return p.add(tables.MatchDestinationPorts{First: a, Last: b})
}

// set reads the name of a set and the looked-up fields.
func (p *savedText) set(name string) error {
	flags, err := p.value()
	if err != nil {
		return err
	}
	switch flags {
	case "src":
		return p.add(tables.MatchSet{Family: p.family, Side: tables.Source, Set: name})
	case "dst":
		return p.add(tables.MatchSet{Family: p.family, Side: tables.Destination, Set: name})
	case "dst,dst":
		return p.add(tables.MatchPortSet{Family: p.family, Set: name})
	}
	return errForeign
}

// mark reads the mark of the packet, or of its connection.
func (p *savedText) mark(text string, negated bool) error {
	value, mask, err := savedMark(text)
	switch {
	case err != nil:
		return err
	case p.module == "mark":
		return p.add(tables.MatchMark{Value: value, Mask: mask, Negated: negated})
	case p.module == "connmark" && !negated:
		return p.add(tables.MatchConnMark{Value: value, Mask: mask})
	}
	return errForeign
}

// savedMark reads "0x1/0xff" or "0x1".
func savedMark(text string) (value, mask uint32, err error) {
	v, m, masked := strings.Cut(text, "/")
	mask = ^uint32(0)
	value, err = number32(v)
	if masked && err == nil {
		mask, err = number32(m)
	}
	return value, mask, foreignUnless(err == nil)
}

// savedBurst is the burst that the tools do not print.
const savedBurst = "5"

// perSecond reads the limit of a report or an answer.
func (p *savedText) perSecond() (uint32, error) {
	rate, perSecond := strings.CutSuffix(p.limit, "/sec")
	limit, err := number32(rate)
	return limit, foreignUnless(perSecond && rate == p.burst && err == nil)
}

// reject reads the options of REJECT behind the limit. The family is only in the name of
// the ICMP error.
func (p *savedText) reject() error {
	limit, err := p.perSecond()
	if err != nil || len(p.words) != 2 || p.words[0] != "--reject-with" {
		return errForeign
	}
	a := tables.Reject{With: tables.AdminProhibited, PerSecond: limit}
	switch p.words[1] {
	case "tcp-reset":
		a.With = tables.TCPReset
	case "icmp-admin-prohibited":
		a.Family = model.IPv4
	case "icmp6-adm-prohibited":
		a.Family = model.IPv6
	default:
		return errForeign
	}
	p.words, p.rule.Action = nil, a
	return nil
}

// report reads the options of NFLOG behind the limit.
func (p *savedText) report() error {
	w := p.words
	if len(w) != 6 || w[0] != "--nflog-prefix" || w[2] != "--nflog-group" || w[4] != "--nflog-size" {
		return errForeign
	}
	p.words = nil
	group, err1 := port(w[3])
	length, err2 := number32(w[5])
	limit, err3 := p.perSecond()
	p.rule.Action = tables.Report{Prefix: w[1], Group: group, Length: length, PerSecond: limit}
	return foreignUnless(err1 == nil && err2 == nil && err3 == nil)
}

// target reads the action and its options. No chain can have the name of an action.
func (p *savedText) target(leave bool, name string) error {
	switch name {
	case "ACCEPT":
		p.rule.Action = tables.Accept{}
	case "DROP":
		p.rule.Action = tables.Drop{}
	case "RETURN":
		p.rule.Action = tables.Return{}
	case "NFLOG":
		return cmp.Or(foreignUnless(!leave), p.report())
	case "REJECT":
		return cmp.Or(foreignUnless(!leave), p.reject())
	case "MASQUERADE":
		p.rule.Action = tables.Masquerade{}
	case "MARK", "CONNMARK":
		if len(p.words) < 2 || p.words[0] != "--set-xmark" {
			return errForeign
		}
		value, mask, err := savedMark(p.words[1])
		p.words = p.words[2:]
		if p.rule.Action = (tables.SetMark{Value: value, Mask: mask}); name == "CONNMARK" {
			p.rule.Action = tables.SetConnMark{Value: value, Mask: mask}
		}
		return err
	default:
		if p.chains[name] == nil {
			return errForeign
		}
		if p.rule.Action = (tables.Jump{Chain: name}); leave {
			p.rule.Action = tables.Goto{Chain: name}
		}
		return nil
	}
	return foreignUnless(!leave)
}
