package rules

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// AnswersPerSecond bounds the answers to rejected packets: for each chain that answers, TCP
// resets and ICMP errors separately. Packets above it are dropped without an answer. The
// kernel bounds ICMP errors further (icmp_ratelimit).
const AnswersPerSecond = 500

// RejectedChain returns the name of the chain for all packets that policy rejects in a
// direction.
func RejectedChain(d model.Direction) string {
	if d == model.Egress {
		return ChainRejectedOut
	}
	return ChainRejectedIn
}

// rejectedComment is the comment of the rules that end a rejected packet's way in
// RejectedChain. Their counters count all rejected packets.
func rejectedComment(d model.Direction) string { return "rejected " + d.String() }

// reject returns the action of a rule that rejects.
func reject(d model.Direction) tables.Action { return tables.Goto{Chain: RejectedChain(d)} }

// Rejected renders the chain RejectedChain: it answers and drops packets, and with reported
// it reports them first. Packets come here after the checks of their source, as denied
// packets do. The kernel builds the answer from the packet, with its connection, so NAT
// translates it back. The answer leaves by OUTPUT, which policy does not judge.
//
// The kernel answers only in the table filter of iptables. There the chain marks the packet
// for that (see Answers). A packet that has the mark already is one to the own node (see
// OwnNodeList): it is dropped here, because no chain of ours follows.
func (r *Renderer) Rejected(d model.Direction, reported bool) tables.Chain {
	c := tables.Chain{Name: RejectedChain(d), Rules: reports(DeniedChain(d), reported)}
	comment := rejectedComment(d)
	if !r.nftables {
		if d == model.Egress {
			c.Rules = append(c.Rules, tables.Rule{Matches: []tables.Match{isRejected()}, Action: tables.Drop{}, Comment: comment})
		}
		c.Rules = append(c.Rules,
			tables.Rule{Action: tables.SetMark{Value: MarkRejected, Mask: MarkRejected | MarkJudged}, Comment: "to the chain that answers"},
			tables.Rule{Action: tables.Accept{}, Comment: comment},
		)
		return c
	}
	c.Rules = append(c.Rules, answers(comment, 0)...)
	c.Rules = append(c.Rules, tables.Rule{Action: tables.Drop{}, Comment: comment})
	return c
}

// Answers renders the chains that answer packets with MarkRejected. Only iptables needs
// one.
func (r *Renderer) Answers() []tables.Chain {
	if r.nftables {
		return nil
	}
	return []tables.Chain{{
		Name:  ChainAnswer,
		Rules: append(answers("answered", model.IPv4, model.IPv6), tables.Rule{Action: tables.Drop{}, Comment: "too many, no answer"}),
	}}
}

// answers renders the rules that answer: TCP with a reset, other packets with an ICMP error.
func answers(comment string, families ...model.Family) []tables.Rule {
	tcp := func(negated bool) []tables.Match {
		return []tables.Match{tables.MatchProtocol{Protocol: model.TCP, Negated: negated}}
	}
	all := []tables.Rule{{Matches: tcp(false), Action: tables.Reject{With: tables.TCPReset, PerSecond: AnswersPerSecond}, Comment: comment}}
	for _, f := range families {
		all = append(all, tables.Rule{
			Matches: tcp(true), Action: tables.Reject{With: tables.AdminProhibited, Family: f, PerSecond: AnswersPerSecond}, Comment: comment,
		})
	}
	return all
}

func isRejected() tables.Match { return tables.MatchMark{Value: MarkRejected, Mask: MarkRejected} }
