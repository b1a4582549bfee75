package ovsdb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	flx "github.com/felixlike/felixlike/model"
)

// WatchAttachments reports the pods' interfaces on the bridge: first all present
// ones, then inSync once, then every change, until ctx ends. If the record of a row
// cannot be read, WatchAttachments skips the row and calls bad, once for each new
// reason. It never calls two of the functions at once.
//
// It compares snapshots rather than trusting events: the library empties its
// copy of the database without an event when it reconnects.
func (c *Client) WatchAttachments(ctx context.Context, update func(flx.Update), inSync func(), bad func(error)) error {
	w := watcher{update: update, bad: bad, known: map[string]*flx.Attachment{}, reported: map[string]string{}}
	for first := true; ; first = false {
		changed := c.change.wait()
		rows, err := list[interfaceRow](ctx, c)
		if err != nil {
			return fmt.Errorf("watch attachments: %w", err)
		}
		w.compare(rows)
		if first {
			inSync()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watcher turns snapshots into updates.
type watcher struct {
	update func(flx.Update)
	bad    func(error)
	known  map[string]*flx.Attachment
	// reported are the reasons given to bad, by interface.
	reported map[string]string
}

func (w *watcher) compare(rows []*interfaceRow) {
	now := make(map[string]*flx.Attachment, len(rows))
	wrong := map[string]string{}
	for _, row := range rows {
		a, err := attachmentOf(row)
		switch {
		case err == nil:
			now[a.Interface] = a
		case !errors.Is(err, errNotAttached):
			wrong[row.Name] = err.Error()
			if w.reported[row.Name] != err.Error() {
				w.bad(err)
			}
		}
	}
	w.reported = wrong
	// Removals come first: an address may have moved to another interface.
	lost := map[flx.PodID]bool{}
	for _, name := range sorted(w.known) {
		old, still := w.known[name], now[name]
		if still == nil || still.Pod != old.Pod {
			w.update(flx.AttachmentRemove{Pod: old.Pod, Interface: name})
			lost[old.Pod] = true
		}
	}
	for _, name := range sorted(now) {
		// A pod that lost one of two interfaces keeps the other: report it again.
		if old := w.known[name]; old == nil || lost[old.Pod] || !equalAttachment(old, now[name]) {
			w.update(flx.AttachmentUpdate{Attachment: now[name]})
		}
	}
	w.known = now
}

func sorted(m map[string]*flx.Attachment) []string {
	return slices.SortedFunc(maps.Keys(m), strings.Compare)
}

func equalAttachment(a, b *flx.Attachment) bool {
	return a.Pod == b.Pod && a.Sandbox == b.Sandbox && a.PodInterface == b.PodInterface && a.OFPort == b.OFPort && bytes.Equal(a.MAC, b.MAC) && slices.Equal(a.Addresses, b.Addresses)
}
