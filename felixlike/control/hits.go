package control

import (
	"context"
	"net/http"
	"time"
)

const hitsPath = "/" + Version + "/hits"

// Hits are the counters of the rules of this node's policies.
type Hits struct {
	Node    string `json:"node"`
	Backend string `json:"backend"`
	// At is when the counters were read, Since when the agent first did: a hit from
	// before then has no time.
	At    time.Time  `json:"at"`
	Since time.Time  `json:"since"`
	Rules []RuleHits `json:"rules"`
}

// RuleHits are the counters of one rule since it was programmed.
type RuleHits struct {
	Policy string `json:"policy"`
	// Rule is as in "ingress[0]".
	Rule string `json:"rule"`
	// RuleName is the name that the author gave the rule.
	RuleName string `json:"ruleName,omitempty"`
	// Node reports that the policy applies to the node itself, and not to pods.
	Node bool `json:"node,omitempty"`
	// Connections counts the connections that the rule allowed. An unanswered connection
	// counts with each of its packets.
	Connections uint64 `json:"connections"`
	// Packets counts all packets of its connections, where the backend does. Netfilter backends neither judge
	// nor count packets of established connections again.
	Packets *uint64 `json:"packets,omitempty"`
	// Uncounted reports that the rule has no counter of its own: it is in grants (nftables.layout maps).
	Uncounted bool `json:"uncounted,omitempty"`
	// Last is when a hit was last seen, zero if none was since the agent looks.
	Last time.Time `json:"last,omitzero"`
}

// Never reports whether the rule has not decided anything since it was programmed.
func (h RuleHits) Never() bool {
	return !h.Uncounted && h.Connections == 0 && (h.Packets == nil || *h.Packets == 0)
}

// Hits returns the counters of the rules.
func (c *Client) Hits(ctx context.Context) (Hits, error) {
	var hits Hits
	err := c.call(ctx, http.MethodGet, hitsPath, nil, nil, &hits)
	return hits, err
}
