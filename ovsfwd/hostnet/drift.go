package hostnet

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/felixlike/felixlike/internal/backoff"
	"github.com/felixlike/felixlike/tables"
)

// Intervals of drift.
const (
	// steady is how long the host network has to stay as desired for an outage to end.
	steady = time.Second
	// tolerated is how long an outage may last before it is a problem.
	tolerated = 5 * time.Second
	// keptNames bounds the objects that a problem names.
	keptNames = 3
)

// drift is the state that Watch and Apply share.
type drift struct {
	mu sync.Mutex
	// wanted is the desired state, nil before there is one, and mtu the desired MTU of the
	// gateway port.
	wanted *objects
	mtu    int
	// link is the index of the gateway port that was programmed last, device that of the WireGuard device; applied is
	// set if there was a port.
	link, device int
	applied      bool

	// noticed is the time of the first change that Watch noticed since the last read, zero
	// without one, and names are the objects. scheduled is set while a call of changed is
	// scheduled, due after the call.
	noticed        time.Time
	names          []string
	scheduled, due bool
	// asked is set if the current Apply reads because of a notice. After it, the next notice
	// waits.
	asked   bool
	begun   time.Time // when that Apply began
	contest backoff.Contest

	outage outage
}

// outage is a period in which the host network is not in the desired state, or is changed
// again right after each repair.
type outage struct {
	// since is the begin, zero without an outage. repaired is the time of the last
	// successful repair, zero after an error.
	since, repaired time.Time
	// names are the objects that were changed, err the last Apply's error.
	names []string
	err   error
}

func (d *drift) want(o *objects) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wanted = o
}

func (d *drift) wantMTU(mtu int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mtu = mtu
}

// begin notes the begin of an Apply, and reports whether it has to read: because it must, or
// because a notice is due. It returns the time at which Watch noticed the first change.
func (d *drift) begin(must bool) (noticed time.Time, read bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if !must && !d.due {
		return now, false
	}
	noticed = d.noticed
	if noticed.IsZero() {
		noticed = now
	}
	d.asked, d.begun = d.due, now
	d.noticed, d.names, d.due = time.Time{}, nil, false
	return noticed, true
}

// end notes the end of an Apply that has read.
func (d *drift) end(last programmed, noticed time.Time, repaired []tables.Repair, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.outage.applied(noticed, now, repaired, err)
	if err == nil {
		d.link, d.device, d.applied = last.link, last.device, true
	}
	if d.asked {
		d.contest.Repaired(d.begun, now)
	}
}

// missed requests an Apply that reads, because Watch may have missed changes.
func (d *drift) missed(changed func()) {
	d.mu.Lock()
	applied := d.applied
	d.mu.Unlock()
	if applied {
		d.note("", changed)
	}
}

// note notes a change of an object; the name is empty if it is not known. It calls changed
// once for all changes that come together, and later while another program undoes repairs.
func (d *drift) note(name string, changed func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if d.noticed.IsZero() {
		d.noticed = now
	}
	if name != "" {
		d.names = keep(d.names, name)
	}
	if d.scheduled {
		return
	}
	d.scheduled = true
	time.AfterFunc(max(gather, d.contest.Wait(now)), func() {
		d.mu.Lock()
		d.scheduled, d.due = false, true
		d.mu.Unlock()
		changed()
	})
}

// keep appends a new name, up to a limit.
func keep(names []string, name string) []string {
	if len(names) < keptNames && !slices.Contains(names, name) {
		names = append(names, name)
	}
	return names
}

// applied notes the outcome of an Apply. noticed is the time of its first change.
func (o *outage) applied(noticed, now time.Time, repaired []tables.Repair, err error) {
	o.expire(noticed)
	o.err = err
	if len(repaired) == 0 && err == nil && o.since.IsZero() {
		return
	}
	if o.since.IsZero() {
		o.since = noticed
	}
	for _, r := range repaired {
		o.names = keep(o.names, r.Object+" "+r.Name)
	}
	switch {
	case err != nil:
		o.repaired = time.Time{}
	case len(repaired) > 0 || o.repaired.IsZero():
		o.repaired = now
	}
}

// expire ends an outage if the host network stayed as desired until then.
func (o *outage) expire(until time.Time) {
	if !o.repaired.IsZero() && until.Sub(o.repaired) > steady {
		*o = outage{}
	}
}

// problem returns the text of an outage that lasts too long, or of a change that no Apply has
// read for too long.
func (d *drift) problem(now time.Time) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	until := now
	if !d.noticed.IsZero() {
		until = d.noticed
	}
	d.outage.expire(until)
	since, names := d.outage.since, d.outage.names
	if since.IsZero() {
		since, names = until, d.names
	}
	lasts := now.Sub(since)
	if lasts <= tolerated {
		return ""
	}
	text := fmt.Sprintf("the host's side of the gateway port has not been in the desired state for %s", lasts.Round(time.Second))
	if len(names) > 0 {
		text += ": other programs change " + strings.Join(names, ", ")
	}
	if err := d.outage.err; err != nil {
		text += ": " + err.Error()
	}
	return text
}
