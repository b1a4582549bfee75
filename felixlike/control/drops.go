package control

import (
	"context"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/felixlike/felixlike/model"
)

const dropsPath = "/" + Version + "/drops"

// Drop is a packet that policy denied, a packet to a Service address that no Service
// has, or one that the agent led to no endpoint of a Service. If NotShown is set, it is a number of such packets without details.
type Drop struct {
	At time.Time `json:"time"`
	// Direction is that of the policy which denies: "egress" of the source, or
	// "ingress" of the destination.
	Direction string  `json:"direction,omitempty"`
	From      DropEnd `json:"from,omitzero"`
	To        DropEnd `json:"to,omitzero"`
	// Protocol is "tcp", "udp", "sctp", "icmp", "icmpv6" or a number.
	Protocol   string    `json:"protocol,omitempty"`
	SourcePort uint16    `json:"sourcePort,omitempty"`
	Port       uint16    `json:"port,omitempty"`
	ICMP       *ICMPType `json:"icmp,omitempty"`
	// By is the reason of the denial: one of the By constants.
	By string `json:"by,omitempty"`
	// Policies are those that isolate the pod in the direction and do not allow the packet.
	Policies []string `json:"policies,omitempty"`
	// MorePolicies counts those that are not in the list, in a history.
	MorePolicies int `json:"morePolicies,omitempty"`
	// Policy and Rule name the rule that denies. RuleName is the name that its author gave it.
	Policy   string `json:"policy,omitempty"`
	Rule     string `json:"rule,omitempty"`
	RuleName string `json:"ruleName,omitempty"`
	// Rejected is true if the rule rejects: the sender gets an answer, up to a rate.
	Rejected bool `json:"rejected,omitempty"`
	// Service is the port of the Service that has no endpoint for the packet: "shop/web:80/tcp"; if the Service has no such port, the Service.
	Service string `json:"service,omitempty"`
	// Reason is why the pod is closed.
	Reason string `json:"reason,omitempty"`
	// NotShown counts denied packets without a report: more came than the dataplane or the follower takes.
	NotShown uint64 `json:"notShown,omitempty"`
}

// Reasons of a denial.
const (
	// ByIsolation: policies isolate the pod and do not allow the packet.
	ByIsolation = "isolation"
	// ByRule: a rule says so.
	ByRule = "rule"
	// ByClosed: nothing gets to or from the pod, for the Reason.
	ByClosed = "closed"
	// ByNoService: no policy denies it; no Service has the address it goes to.
	ByNoService = "no-service"
	// ByNoEndpoint: no policy denies it; its Service has no endpoint, and the sender gets an answer, up to a rate.
	ByNoEndpoint = "no-endpoint"
	// ByNoPort: no policy denies it; the Service of the cluster IP has no such port, and the sender gets an answer, up to a rate.
	ByNoPort = "no-port"
	// ByNoLocalEndpoint: the traffic policy of the Service wants an endpoint on this node, and there is none.
	ByNoLocalEndpoint = "no-local-endpoint"
	// BySourceRanges: the source ranges of the Service do not have the sender.
	BySourceRanges = "source-ranges"
	// ByStaged: nothing denies it; the Policy, which is staged, would.
	ByStaged = "staged"
	// ByChanged: the reason of the denial is not in force any more.
	ByChanged = "changed"
)

// DropEnd is one end of a packet: an address, and its pod or node if known.
type DropEnd struct {
	Address netip.Addr `json:"address"`
	Pod     string     `json:"pod,omitempty"`
	Node    string     `json:"node,omitempty"`
}

// String returns the pod, the node, or else the address.
func (e DropEnd) String() string {
	switch {
	case e.Pod != "":
		return e.Pod
	case e.Node != "":
		return "node " + e.Node
	}
	return e.Address.String()
}

// ICMPType has the type and code of an ICMP packet.
type ICMPType struct {
	Type uint8 `json:"type"`
	Code uint8 `json:"code"`
}

// PortText returns "tcp/80", "icmp echo-request" or the protocol alone.
func (d Drop) PortText() string {
	switch {
	case d.ICMP != nil:
		return d.Protocol + " " + d.ICMP.name(d.Protocol)
	case d.Port != 0:
		return d.Protocol + "/" + strconv.Itoa(int(d.Port))
	}
	return d.Protocol
}

// name returns the name that ping's packets have, or the numbers.
func (t ICMPType) name(protocol string) string {
	request, reply := uint8(8), uint8(0)
	if protocol == model.ICMPv6.String() {
		request, reply = 128, 129
	}
	switch t {
	case ICMPType{Type: request}:
		return "echo-request"
	case ICMPType{Type: reply}:
		return "echo-reply"
	}
	return fmt.Sprintf("%d/%d", t.Type, t.Code)
}

// Drops has the agent report the packets that policy denies from now on. It calls following once the
// dataplane reports, and got for each packet, until ctx ends or one of the two fails. The end of ctx is no
// error.
func (c *Client) Drops(ctx context.Context, following func(), got func(Drop) error) error {
	return stream(ctx, c, dropsPath, following, got)
}
