package rules

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Settings of the reports of denied packets, the same on all nodes.
const (
	// ReportGroup is the NFLOG group. No registry assigns NFLOG groups.
	ReportGroup uint16 = 26552
	// ReportLength is the reported part of a packet in bytes: an IPv6 header with some
	// extensions, and the ports after them.
	ReportLength = 128
	// ReportsPerSecond bounds the cost of a flood of denied packets.
	ReportsPerSecond = 100
)

// DeniedChain returns the name of the chain that drops all packets that policy denies
// in a direction. The name is also the NFLOG prefix of its reports.
func DeniedChain(d model.Direction) string {
	if d == model.Egress {
		return ChainDeniedOut
	}
	return ChainDeniedIn
}

// ReportComment is the comment of the rules that report. Their counters count the
// reported packets.
const ReportComment = "somebody follows what is denied"

// deniedComment is the comment of the rule that drops. Its counter counts all denied
// packets.
func deniedComment(d model.Direction) string { return "denied " + d.String() }

// Denied renders the chain DeniedChain: it drops packets, and with reported it reports
// them first. All pods share the chain, so reports begin and end with the edit of one
// rule.
func Denied(d model.Direction, reported bool) tables.Chain {
	return drops(DeniedChain(d), deniedComment(d), reported)
}

// noServiceComment is the comment of the rule that drops packets to an address that no
// Service has.
const noServiceComment = "no service has this address"

// NoService renders the chain that drops packets of pods to a Service address that no
// proxy has rewritten. No policy denies these packets; reports treat them as denied ones.
func NoService(reported bool) tables.Chain { return drops(ChainNoService, noServiceComment, reported) }

func drops(chain, comment string, reported bool) tables.Chain {
	c := tables.Chain{Name: chain, Rules: reports(chain, reported)}
	c.Rules = append(c.Rules, tables.Rule{Action: tables.Drop{}, Comment: comment})
	return c
}

// reports renders the rule that reports packets with the prefix, if they are reported.
func reports(prefix string, reported bool) []tables.Rule {
	if !reported {
		return nil
	}
	return []tables.Rule{{
		Action: tables.Report{Group: ReportGroup, Prefix: prefix, Length: ReportLength, PerSecond: ReportsPerSecond}, Comment: ReportComment,
	}}
}

// Deny returns the action that ends the evaluation of a direction against the
// packet.
func Deny(d model.Direction) tables.Action { return tables.Goto{Chain: DeniedChain(d)} }
