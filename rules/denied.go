package rules

import (
	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// What a report of a denied packet has in common on all nodes.
const (
	// ReportGroup is the group of NFLOG; there is none that is assigned to anybody.
	ReportGroup uint16 = 26552
	// ReportLength is how much of a packet is told: an IPv6 header with some
	// extensions, and the ports behind it.
	ReportLength = 128
	// ReportsPerSecond bounds what a flood of denied packets costs.
	ReportsPerSecond = 100
)

// DeniedChain returns the name of the chain to which everything goes that policy
// denies in a direction, which also is the prefix of what is told of it.
func DeniedChain(d model.Direction) string {
	if d == model.Egress {
		return ChainDeniedOut
	}
	return ChainDeniedIn
}

// ReportComment is the comment of the rules that report, whose counters have what was
// reported.
const ReportComment = "somebody follows what is denied"

// DeniedComment is the comment of the rule that drops, whose counter has all.
func DeniedComment(d model.Direction) string { return "denied " + d.String() }

// Denied renders that chain: it drops, and with reported tells of what it drops. One
// chain has it for all pods, so that to begin and to end that is an edit of one rule.
func Denied(d model.Direction, reported bool) tables.Chain {
	return drops(DeniedChain(d), DeniedComment(d), reported)
}

// NoServiceComment is the comment of the rule that drops packets to an address that no
// Service has.
const NoServiceComment = "no service has this address"

// NoService renders the chain that drops packets of pods to a Service address that no
// proxy has rewritten. No policy denies these packets; reports treat them as denied ones.
func NoService(reported bool) tables.Chain { return drops(ChainNoService, NoServiceComment, reported) }

// DropChains are the chains that report what they drop.
func DropChains() []string { return []string{ChainDeniedIn, ChainDeniedOut, ChainNoService} }

// IsDropComment reports whether a rule of a DropChain with the comment drops.
func IsDropComment(comment string) bool {
	return comment == NoServiceComment || comment == DeniedComment(model.Ingress) || comment == DeniedComment(model.Egress)
}

func drops(chain, comment string, reported bool) tables.Chain {
	c := tables.Chain{Name: chain}
	if reported {
		c.Rules = append(c.Rules, tables.Rule{
			Action: tables.Report{Group: ReportGroup, Prefix: chain, Length: ReportLength, PerSecond: ReportsPerSecond}, Comment: ReportComment,
		})
	}
	c.Rules = append(c.Rules, tables.Rule{Action: tables.Drop{}, Comment: comment})
	return c
}

// Deny returns the action that ends the evaluation of a direction against the
// packet.
func Deny(d model.Direction) tables.Action { return tables.Goto{Chain: DeniedChain(d)} }
