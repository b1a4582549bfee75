package driver

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
	"github.com/felixlike/felixlike/felixlike/handover"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// change is a change of the backend on a live node. The new backend is programmed
// beside the old one and read back; only then the old one is removed. While both are in
// force, a packet has to pass both, so no packet passes that either denies. Established
// connections continue: netfilter backends share the kernel's connection tracking. If one
// of the two judges in the switch, connections are copied to the other connection
// tracking before and after packets take the other way.
//
// Its phases, with those in brackets only between the host and the switch:
//
//	[carrying] > joining > building > verifying > [carrying > MOVING] > following > adopting > retiring
//	                 |         |          |            |
//	                 +---------+----------+------------+- failed MaxTries times: the way back, if steered, and leaving
//
//	MOVING: steering > settling > steering > settling > carrying > steering > settling > carrying
type change struct {
	from, to backend.Backend
	runner   *runner
	// plan has the remaining phases; the first one is the current phase.
	plan  []phase
	began time.Time
	// place is the enforcement point after the change: the new backend's, or the old one's
	// again once the change has failed. way are the modes that are left on the way there. steered is set if the forwarding
	// flows may already lead there.
	place   backend.Place
	way     []pipeline.Mode
	steered bool
	// asked is set once the phase has started the work that it waits for.
	asked bool
	// tries counts the failures in this phase.
	tries int
	// outcome gets the result for the caller; it is buffered.
	outcome chan error
	err     error
}

// phase is one step of a handover.
type phase uint8

const (
	// carrying: connections that the old enforcement point allowed are copied to the new
	// one.
	carrying phase = iota + 1
	// joining: the new backend gets the model after the current cycle ends.
	joining
	// building: cycles program the new backend, like all other stages.
	building
	// verifying: the new backend is read back and compared with the desired state.
	verifying
	// steering: the forwarding flows lead packets one step further to the other enforcement point.
	steering
	// settling: packets may still take the old way.
	settling
	// following: the changes that came during verifying are programmed.
	following
	// adopting: the old backend has left the cycles; the new one takes over the objects that
	// both use.
	adopting
	// retiring: the old backend is removed.
	retiring
	// leaving: the new backend is removed again.
	leaving
)

// String returns the phase as status shows it.
func (p phase) String() string {
	switch p {
	case carrying:
		return "carrying connections"
	case joining, building:
		return "building"
	case verifying, following:
		return "verifying"
	case steering, settling:
		return "steering packets"
	case adopting, retiring:
		return "removing the old"
	case leaving:
		return "giving up"
	}
	return fmt.Sprintf("phase(%d)", uint8(p))
}

// planOf returns the phases of a change. Between two enforcement points, connections are
// copied four times: before the new backend sees packets that the old one allowed, before
// packets take the other way, before the last step of it, and when no packet can take the old way
// any more.
func planOf(from, to backend.Place) []phase {
	if from == to {
		return []phase{joining, building, verifying, following, adopting, retiring}
	}
	return slices.Concat([]phase{carrying, joining, building, verifying, carrying}, moving(len(to.Way())), []phase{following, adopting, retiring})
}

// moving are the phases that lead packets through so many modes. In the last one, one enforcement point judges all packets.
func moving(modes int) []phase {
	phases := slices.Repeat([]phase{steering, settling}, modes-1)
	return append(phases, carrying, steering, settling, carrying)
}

// phase returns the current phase.
func (h *change) phase() phase { return h.plan[0] }

// in reports whether the phase is the current one. It is false if there is no handover.
func (h *change) in(p phase) bool { return h != nil && h.phase() == p }

// next begins the next phase.
func (h *change) next() {
	h.plan = h.plan[1:]
	h.asked, h.tries = false, 0
	if h.in(verifying) {
		h.readBack()
	}
}

// readBack makes the new backend compare its observed state with its desired state.
func (h *change) readBack() {
	h.runner.reread()
	h.runner.again()
}

// failed notes a failure of the phase, and retries the phase up to maxTries times. Then
// the old backend stays in force: packets that may take the other way are led back first,
// with the connections begun there. If a step of the way back fails too often, the handover goes to its
// last mode at once: connections may be lost then, but nothing else.
func (h *change) failed(err error) {
	h.err = err
	if h.tries++; h.tries < handover.MaxTries {
		h.again()
		return
	}
	switch back := h.place == h.from.Place(); {
	case !h.steered:
		h.plan = []phase{leaving}
	case !back:
		h.way = h.wayBack()
		h.plan = append(moving(len(h.way)), leaving)
	case h.in(carrying), h.in(settling):
		h.plan = h.plan[1:]
	case len(h.way) > 1:
		h.way = h.way[len(h.way)-1:]
		h.plan = []phase{steering, settling, carrying, leaving}
	default:
		h.again()
		return
	}
	h.place, h.asked, h.tries = h.from.Place(), false, 0
}

// wayBack are the modes from the last one that was tried to that of the old backend. No other ones: they would lead packets to a new backend that
// has failed, and that has judged none so far.
func (h *change) wayBack() []pipeline.Mode {
	way := h.to.Place().Way()
	tried := len(way) - len(h.way)
	if h.in(steering) {
		tried++
	}
	back := append([]pipeline.Mode{h.from.Place().Mode()}, way[:tried-1]...)
	slices.Reverse(back)
	return back
}

// again retries the phase. Failed cycles are retried anyway.
func (h *change) again() {
	h.asked = h.in(steering)
	if h.in(verifying) {
		h.readBack()
	}
}

// note takes the outcome of a stage: of the new backend, or of the forwarding flows that
// lead to it.
func (h *change) note(o outcome) {
	if h == nil || !h.awaits(o) {
		return
	}
	switch {
	case h.in(adopting): // the new backend judges already: a failure is retried as for any stage
		if o.err == nil {
			h.next()
		}
	case o.err != nil:
		h.failed(o.err)
	case h.in(steering) && o.Name == backend.ForwardingStage:
		h.way = h.way[1:]
		h.next()
	case h.in(steering): // the new backend is up to date before
	case len(o.applied.Refused) > 0:
		h.tries = handover.MaxTries
		h.failed(fmt.Errorf("%s %s: %s", o.applied.Refused[0].Object, o.applied.Refused[0].Name, o.applied.Refused[0].Reason))
	case len(o.applied.Unreadable) > 0: // the new backend would not be ready
		h.tries = handover.MaxTries
		h.failed(errors.New(o.applied.Unreadable[0]))
	case h.in(building), h.in(verifying) && o.full && o.applied.Writes == 0:
		h.next()
	case h.in(verifying):
		h.failed(fmt.Errorf("the state that was read back differs from the desired state in %d places", o.applied.Writes))
	case h.in(following):
		h.tries = 0
	}
}

// awaits reports whether the phase waits for that outcome.
func (h *change) awaits(o outcome) bool {
	switch h.phase() {
	case building, verifying, following, adopting:
		return o.runner == h.runner
	case steering:
		return h.asked && (o.Name == backend.ForwardingStage || o.runner == h.runner)
	}
	return false
}

// verifies reports whether the runner's backend is to be read back. Until then, its managers
// get no updates.
func (h *change) verifies(r *runner) bool {
	return h.in(verifying) && h.runner == r
}

// holds reports whether the runner must not be applied beside the cycles: while packets
// change their way, neither backend may be ahead of the other.
func (h *change) holds(r *runner) bool {
	moves := h.in(steering) || h != nil && h.steered && (h.in(settling) || h.in(carrying))
	return moves && (r == h.runner || r.Name == h.from.Stage().Name)
}
