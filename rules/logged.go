package rules

import (
	"crypto/sha256"
	"strings"

	"github.com/felixlike/felixlike/model"
	"github.com/felixlike/felixlike/tables"
)

// Settings of the reports of rules with Log, the same on all nodes.
const (
	// LogGroup is the NFLOG group of these reports.
	LogGroup uint16 = 26553
	// LogsPerSecond bounds the reports of one rule.
	LogsPerSecond = 20
	// LogsPerNode bounds the reports of all rules of a node: in the switch, and in the agent.
	LogsPerNode = 500
)

// logPrefix begins the NFLOG prefix of each report.
const logPrefix = "log-"

// LogKey identifies a rule in reports: its policy, direction, name and action. Rules that
// share it, as the parts of a split rule do, are the same to a reader of the log.
type LogKey string

// NewLogKey returns the key of a rule: a hash, since names are longer than the kernel takes,
// and as letters, since the drivers take no other characters.
func NewLogKey(id model.PolicyID, d model.Direction, r *model.Rule) LogKey {
	sum := sha256.Sum256([]byte(id.Identity() + d.String() + "\x00" + r.Action.String() + "\x00" + r.Name))
	var key strings.Builder
	for _, b := range sum[:16] {
		key.WriteByte('a' + b>>4)
		key.WriteByte('a' + b&15)
	}
	return LogKey(key.String())
}

// LogKeyOf returns the key in the NFLOG prefix of a report.
func LogKeyOf(prefix string) (LogKey, bool) {
	key, ok := strings.CutPrefix(prefix, logPrefix)
	return LogKey(key), ok
}

// LogComment is the comment of a rule that reports for the rule with that comment.
func LogComment(comment string) string { return "log " + comment }

// SetLogs says whether rules with Log report from now on. The caller renders their
// policies again.
func (r *Renderer) SetLogs(on bool) { r.logs = on }

// logged renders the report that comes before the decision of a rule. Only packets that the
// rule decides get there, and the report changes nothing about them.
func logged(id model.PolicyID, d model.Direction, rule *model.Rule, matches []tables.Match) tables.Rule {
	return tables.Rule{
		Matches: matches,
		Action:  tables.Report{Group: LogGroup, Prefix: logPrefix + string(NewLogKey(id, d, rule)), Length: ReportLength, PerSecond: LogsPerSecond},
		Comment: LogComment(id.String() + " " + rule.Name),
	}
}
