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
	// LogsPerNode bounds the lines of all rules of a node in a second, and LogsBurst those that
	// come at once.
	LogsPerNode = 100
	LogsBurst   = 500
	// LogsReserved is the part of both, in percent, that only policies of the cluster get.
	LogsReserved = 20
)

// logPrefix begins the NFLOG prefix of each report.
const logPrefix = "log-"

// LogKey identifies a rule in reports: its policy, direction, name and action. Several
// rules have the same key if one rule of the object was split into them. Their lines look the same.
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

// SetLogs says whether rules with Log report from now on. The caller renders their
// policies again.
func (r *Renderer) SetLogs(on bool) { r.logs = on }

// logged renders the report that comes before the decision of a rule. Only packets that the
// rule decides get there, and the report changes nothing about them.
func logged(id model.PolicyID, d model.Direction, rule *model.Rule, matches []tables.Match) tables.Rule {
	return tables.Rule{
		Matches: matches,
		Action:  tables.Report{Group: LogGroup, Prefix: logPrefix + string(NewLogKey(id, d, rule)), Length: ReportLength, PerSecond: LogsPerSecond},
		Comment: "log " + id.String() + " " + rule.Name,
	}
}
