package control

import (
	"context"
	"time"

	"github.com/felixlike/felixlike/model"
)

const loggedPath = "/" + Version + "/policy-log"

// Logged is the first packet of a connection that a rule with Log decided. If NotLogged is set, it is a number
// of such packets without details.
type Logged struct {
	At     time.Time    `json:"time"`
	Policy LoggedPolicy `json:"policy,omitzero"`
	// Rule is as in "ingress[0]", and RuleName the name that its author gave it; Tier is "admin",
	// "networkpolicy" or "baseline".
	Rule     string `json:"rule,omitempty"`
	RuleName string `json:"ruleName,omitempty"`
	Tier     string `json:"tier,omitempty"`
	// Verdict is the rule's action: "allow", "deny" or "pass". Direction is that of the rule.
	Verdict   string  `json:"verdict,omitempty"`
	Direction string  `json:"direction,omitempty"`
	From      DropEnd `json:"from,omitzero"`
	To        DropEnd `json:"to,omitzero"`
	// Protocol is "tcp", "udp", "sctp", "icmp", "icmpv6" or a number.
	Protocol   string    `json:"protocol,omitempty"`
	SourcePort uint16    `json:"sourcePort,omitempty"`
	Port       uint16    `json:"port,omitempty"`
	ICMP       *ICMPType `json:"icmp,omitempty"`
	LogLabel   string    `json:"logLabel,omitempty"`
	// NotLogged counts reports that the agent got or lost, and that have no line. It has no packet that the
	// dataplane did not report because of its own limit.
	NotLogged uint64 `json:"notLogged,omitempty"`
}

// LoggedPolicy names the object of a rule.
type LoggedPolicy struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns the name of the policy, as for model.ObjectRef.
func (p LoggedPolicy) String() string { return model.ObjectRef(p).String() }

// PortText returns "tcp/80", "icmp echo-request" or the protocol alone.
func (l Logged) PortText() string {
	return Drop{Protocol: l.Protocol, Port: l.Port, ICMP: l.ICMP}.PortText()
}

// PolicyLog calls got for each packet that a rule with Log decides from now on, until ctx ends or got fails. It
// calls following first. The end of ctx is no error.
func (c *Client) PolicyLog(ctx context.Context, following func(), got func(Logged) error) error {
	return stream(ctx, c, loggedPath, following, got)
}
