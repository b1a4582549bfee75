package felixlike

import (
	"fmt"
	"time"

	"github.com/felixlike/felixlike/felixlike/backend"
)

// handover is a change of the backend on a live node. The new backend is built
// beside the old one and read back; only then the old one is removed. While
// both are in force a packet has to pass both, so nothing gets through that
// either denies, and connections that are established go on: backends in
// netfilter go by the kernel's connection tracking, and where one of the two
// decides in the switch, connections are carried from one tracking to the other
// before and after packets take the other way.
type handover struct {
	from, to backend.Backend
	runner   *runner
	// plan are the phases that are to come; the first one is under way.
	plan  []phase
	began time.Time
	// place is where packets are to be judged in the end: the new backend's, or
	// the old one's again once the change has failed. steered tells that the
	// forwarding flows may lead there already.
	place   backend.Place
	steered bool
	// asked tells that the phase has begun what it waits for.
	asked bool
	// tries counts what went wrong in this phase.
	tries int
	// outcome is what the asker is told; it is buffered.
	outcome chan error
	err     error
}

// phase is one step of a handover.
type phase uint8

const (
	// carrying: the place that is to decide learns the connections that the other
	// one has let through.
	carrying phase = iota + 1
	// joining: the backend waits for the end of a pass to be told the model.
	joining
	// building: it is programmed, like all other stages.
	building
	// verifying: it is read back; nothing may differ from what is wanted.
	verifying
	// steering: the forwarding flows lead packets through the other place.
	steering
	// settling: packets may still go the way of before.
	settling
	// following: it is programmed with what came while it was verified.
	following
	// adopting: the old backend has left the passes; the new one takes over what
	// both have used.
	adopting
	// retiring: the old backend is removed.
	retiring
	// leaving: the new backend is taken out again.
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

// maxTries bounds how often a phase may fail.
const maxTries = 5

// planOf returns the phases of a change. Between two places, connections are
// carried again and again: before the new backend sees packets that the old one
// has let through, before packets take the other way, and those that were begun
// in between, at once and when no packet can go the way of before any more.
func planOf(from, to backend.Place) []phase {
	if from == to {
		return []phase{joining, building, verifying, following, adopting, retiring}
	}
	return []phase{carrying, joining, building, verifying, carrying, steering, carrying, settling, carrying, following, adopting, retiring}
}

// phase returns the one under way.
func (h *handover) phase() phase { return h.plan[0] }

// in reports whether the phase is under way; no handover is in none.
func (h *handover) in(p phase) bool { return h != nil && h.phase() == p }

// next begins the next phase.
func (h *handover) next() {
	h.plan = h.plan[1:]
	h.asked, h.tries = false, 0
	if h.in(verifying) {
		h.readBack()
	}
}

// readBack has the new backend compare what it finds with what it wants.
func (h *handover) readBack() { h.runner.stale, h.runner.wanted = true, true }

// failed notes what went wrong in the phase, which is tried again, but not for
// ever: then the old backend stays in force. Packets that may go the other way
// are led back first, and with them the connections that were begun there; of
// that only the connections can be given up.
func (h *handover) failed(err error) {
	h.err = err
	if h.tries++; h.tries < maxTries {
		h.again()
		return
	}
	switch back := h.place == h.from.Place(); {
	case !h.steered:
		h.plan = []phase{leaving}
	case !back:
		h.plan = []phase{carrying, steering, carrying, settling, carrying, leaving}
	case h.in(carrying), h.in(settling):
		h.plan = h.plan[1:]
	default:
		h.again()
		return
	}
	h.place, h.asked, h.tries = h.from.Place(), false, 0
}

// again has the phase tried again. Passes that fail are tried again anyway.
func (h *handover) again() {
	h.asked = h.in(steering)
	if h.in(verifying) {
		h.readBack()
	}
}

// note takes the outcome of a run of a stage: of the new backend, or of the
// forwarding flows that are to lead to it.
func (h *handover) note(o outcome) {
	if h == nil || !h.awaits(o) {
		return
	}
	switch {
	case h.in(adopting): // it decides already: what fails is tried again like any stage
		if o.err == nil {
			h.next()
		}
	case o.err != nil:
		h.failed(o.err)
	case h.in(steering) && o.Name == backend.ForwardingStage:
		h.next()
	case h.in(steering): // the new backend is up to date before
	case len(o.applied.Refused) > 0:
		h.tries = maxTries
		h.failed(fmt.Errorf("%s %s: %s", o.applied.Refused[0].Object, o.applied.Refused[0].Name, o.applied.Refused[0].Reason))
	case h.in(building), h.in(verifying) && o.full && o.applied.Writes == 0:
		h.next()
	case h.in(verifying):
		h.failed(fmt.Errorf("what was read back differed from what was programmed, in %d places", o.applied.Writes))
	case h.in(following):
		h.tries = 0
	}
}

// awaits reports whether the phase waits for that outcome.
func (h *handover) awaits(o outcome) bool {
	switch h.phase() {
	case building, verifying, following, adopting:
		return o.runner == h.runner
	case steering:
		return h.asked && (o.Name == backend.ForwardingStage || o.runner == h.runner)
	}
	return false
}

// verifies reports whether the runner is to be compared with what it was told
// before: its managers are told nothing new until then.
func (h *handover) verifies(r *runner) bool {
	return h.in(verifying) && h.runner == r
}

// holds reports whether the runner must not be applied beside the passes: when
// packets take the other way, neither backend may be ahead of the other.
func (h *handover) holds(r *runner) bool {
	return h.in(steering) && (r == h.runner || r.Name == h.from.Stage().Name)
}
