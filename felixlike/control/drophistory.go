package control

import (
	"context"
	"net/http"
	"time"
)

const dropHistoryPath = "/" + Version + "/drops/history"

// DropHistory has the packets of the last hour that policy denied on this node, as far as the dataplane reported them.
type DropHistory struct {
	// From is the time since which it has them without a gap. It is zero if the dataplane has not begun to report.
	From time.Time `json:"from,omitzero"`
	// Minutes are in order of time.
	Minutes []DropMinute `json:"minutes"`
	// Fault is why the dataplane does not report now, or "".
	Fault string `json:"fault,omitempty"`
}

// DropMinute has the packets of one minute.
type DropMinute struct {
	// Begin is the first second of the minute.
	Begin time.Time  `json:"begin"`
	Flows []DropFlow `json:"flows"`
	// NotShown counts denied packets without a report, or without room here.
	NotShown uint64 `json:"notShown,omitempty"`
}

// DropFlow are denied packets of one minute that differ in time and source port only.
type DropFlow struct {
	// Drop is the first one, without its source port.
	Drop
	Packets uint64    `json:"packets"`
	Last    time.Time `json:"last"`
}

// DropHistory returns the packets that policy denied in the last hour.
func (c *Client) DropHistory(ctx context.Context) (h DropHistory, err error) {
	err = c.call(ctx, http.MethodGet, dropHistoryPath, nil, nil, &h)
	return h, err
}
