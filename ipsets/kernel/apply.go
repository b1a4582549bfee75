package kernel

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/isolate"
	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/tables"
)

// attempts bounds how often one apply plans a set anew because another program changed
// it meanwhile.
const attempts = 3

// ApplyUpdates creates the desired sets that are not there, and brings their members
// up to date. Call it before the update of the rules that name them. Quarantined sets
// are no error but listed in the Result.
//
// After an error some of the updates may be missing in the kernel; the next apply
// reads the kernel's state.
func (s *Sets) ApplyUpdates(ctx context.Context) (tables.Result, error) {
	start := time.Now()
	var result tables.Result
	if s.watcher.begin() {
		s.Invalidate()
	}
	err := s.update(ctx, &result)
	s.watcher.end(s, result, err == nil)
	result.Duration = time.Since(start)
	result.Refused = s.Refused()
	for _, t := range s.sets {
		if t.desired && t.refusal == nil {
			result.Elements += len(t.members)
		}
	}
	if err != nil {
		return result, s.fail(fmt.Errorf("apply ip sets: %w", err))
	}
	return result, nil
}

func (s *Sets) update(ctx context.Context, result *tables.Result) error {
	now := s.now()
	for name, t := range s.sets {
		if t.refusal != nil && t.refusal.Due(now) {
			s.dirty[name] = true
		}
	}
	if s.known && len(s.dirty) == 0 {
		return nil
	}
	if err := s.connect(); err != nil {
		return err
	}
	if !s.known {
		result.FullRead = true
		if err := s.read(ctx); err != nil {
			return err
		}
	}
	repaired := map[string]string{}
	for attempt := 1; len(s.dirty) > 0; attempt++ {
		jobs, err := s.jobs(ctx, repaired)
		if err != nil {
			return err
		}
		for stage := range stages {
			if err := s.run(ctx, jobs, stage, result); err != nil {
				return err
			}
		}
		for _, j := range jobs {
			s.settle(j, attempt, repaired)
		}
	}
	for _, name := range sorted(repaired) {
		if s.sets[name].refusal == nil {
			result.Repaired = append(result.Repaired, tables.Repair{Object: "set", Name: name, What: repaired[name], Noticed: now})
		}
	}
	return nil
}

// jobs plans the changes of the dirty sets. Sets that cannot be programmed are
// quarantined.
func (s *Sets) jobs(ctx context.Context, repaired map[string]string) ([]*job, error) {
	var jobs []*job
	for _, name := range sorted(s.dirty) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		t := s.sets[name]
		if t.unread {
			what, err := s.readElements(t)
			if err != nil {
				return nil, err
			}
			if what != "" && !s.guest {
				repaired[name] = what
			}
		}
		if typeName(t.spec.Kind) == "" {
			s.refuse(t, "", fmt.Sprintf("no such kind: %s", t.spec.Kind))
		} else if member, reason := t.misfits(); member != "" {
			s.refuse(t, member, reason)
		} else {
			jobs = append(jobs, s.plan(t))
		}
	}
	s.dirty = map[string]bool{} // cleared, it would keep the room of the first load
	return jobs, nil
}

const (
	// datagram and messagesAtOnce bound one datagram: its bytes to a socket's default
	// buffer, its messages to the room that their answers take there.
	datagram       = 128 << 10
	messagesAtOnce = 64
)

// run sends the messages of one stage.
func (s *Sets) run(ctx context.Context, jobs []*job, stage int, result *tables.Result) error {
	var m nfnetlink.Messages
	var sent []op
	flush := func() error {
		if len(sent) == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.conn.Do(&m, func(i int, code unix.Errno, attributes []byte) {
			o := sent[i]
			if code == 0 {
				count(result, stage, o)
			} else if o.job.failed == nil {
				o.job.failed = &failure{code: code, stage: stage, element: refusedElement(attributes, o.elements)}
			}
		})
		m.Reset()
		sent = sent[:0]
		return err
	}
	for _, j := range jobs {
		if j.failed != nil {
			continue
		}
		for _, o := range j.ops[stage] {
			if m.Len()+o.size > datagram || len(sent) == messagesAtOnce {
				if err := flush(); err != nil {
					return err
				}
			}
			o.write(&m)
			sent = append(sent, o)
		}
	}
	return flush()
}

func count(result *tables.Result, stage int, o op) {
	result.Messages++
	switch stage {
	case stageAdd:
		result.ElementsAdded += len(o.elements)
	case stageDelete:
		result.ElementsDeleted += len(o.elements)
	}
}

// settle records the result of a job.
func (s *Sets) settle(j *job, attempt int, repaired map[string]string) {
	t := j.set
	name := ipsets.KernelName(t.spec.Name)
	if j.swapped != "" {
		// The former content, or an incomplete new content.
		s.observed[j.swapped], s.obsolete[j.swapped] = observedSet{}, &isolate.Retry{}
	}
	if j.failed == nil {
		s.observed[name] = j.after
		t.refusal = nil
		t.commit()
		return
	}
	// The next attempt reads the kernel's state.
	s.observed[name], t.unread = observedSet{}, true
	f := j.failed
	if foreign(f.code) && attempt < attempts {
		t.trusted = t.trusted && f.code != errHashFull
		s.dirty[t.spec.Name] = true
		return
	}
	t.trusted = false
	delete(repaired, t.spec.Name)
	member := ""
	if f.element != nil {
		member = f.element.String()
	}
	s.refuse(t, member, f.reason())
}

// reason names the refused operation.
func (f *failure) reason() string {
	what := [stages]string{
		stageDestroy: "the kernel has a set of another type under its name", stageCreate: "create",
		stageAdd: "add members", stageSwap: "swap in the new content", stageDelete: "delete members",
	}[f.stage]
	return fmt.Sprintf("%s: %v", what, errorOf(f.code))
}
