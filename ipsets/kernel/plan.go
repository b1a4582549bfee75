package kernel

import (
	"math/bits"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/model"
)

// A stage is a part of an apply. If one stage of a set fails, run skips the set's later
// stages, so that it never swaps in an incomplete set.
const (
	stageDestroy = iota
	stageCreate
	stageAdd
	stageSwap
	stageDelete
	stages
)

// op is one message.
type op struct {
	job   *job
	write func(*nfnetlink.Messages)
	// elements are those that the message carries.
	elements []element
	size     int
}

// job holds the messages for one set.
type job struct {
	set *set
	ops [stages][]op
	// after is the kernel's state once all messages have succeeded; swapped is the name
	// that the set's former content has then.
	after   observedSet
	swapped string
	failed  *failure
}

// failure is the first message of a job that the kernel refused.
type failure struct {
	code    unix.Errno
	stage   int
	element *element
}

// plan returns the job for a set. It uses deltas if the kernel's set differs only in
// its elements.
func (s *Sets) plan(t *set) *job {
	j := &job{set: t}
	name := ipsets.KernelName(t.spec.Name)
	// Elements are added before others are deleted: none of the kernel's is
	// of the desired and the changed elements.
	need := len(t.members) + 1 + len(t.before)
	old, exists := s.observed[name]
	sameType := exists && old.kind == t.spec.Kind && old.family == t.spec.Family
	if sameType && s.guest {
		j.after = old
		return j
	}
	if sameType && old.plain && old.capacity >= need && !t.inverts() {
		j.after = old
		j.deltas(name)
		return j
	}
	// A new set has room for twice its elements.
	j.after = observedSet{kind: t.spec.Kind, family: t.spec.Family, capacity: max(s.capacity, powerOfTwo(2*need)), plain: true}
	target := name
	switch {
	case sameType:
		target, j.swapped = temporaryName(name), temporaryName(name)
		if _, left := s.observed[target]; left {
			j.destroy(target)
		}
		j.add(stageSwap, op{write: func(m *nfnetlink.Messages) { writeSwap(m, name, target) }})
	case exists:
		j.destroy(name)
	}
	j.create(target)
	return j
}

// deltas adds the elements that are missing, and deletes the others.
func (j *job) deltas(name string) {
	var adds, deletes []element
	for e, there := range j.set.before {
		switch desired := j.set.isDesired(e); {
		case desired && !there:
			adds = append(adds, e)
		case there && !desired:
			deletes = append(deletes, e)
		}
	}
	j.elements(stageAdd, cmdAdd, name, adds)
	j.elements(stageDelete, cmdDel, name, deletes)
}

// create makes a set with all desired elements under a name.
func (j *job) create(name string) {
	elements := slices.Collect(j.set.elements())
	spec, hash, capacity := j.set.spec, hashSize(len(elements)), j.after.capacity
	j.add(stageCreate, op{write: func(m *nfnetlink.Messages) { writeCreate(m, name, spec, hash, capacity) }})
	j.elements(stageAdd, cmdAdd, name, elements)
}

func (j *job) destroy(name string) {
	j.add(stageDestroy, op{write: func(m *nfnetlink.Messages) { writeDestroy(m, name) }})
}

// elements adds or deletes elements, in order.
func (j *job) elements(stage int, command uint8, name string, elements []element) {
	slices.SortFunc(elements, model.Member.Compare)
	kind := j.set.spec.Kind
	for part := range slices.Chunk(elements, elementsPerMessage) {
		j.add(stage, op{
			write: func(m *nfnetlink.Messages) { writeElements(m, command, name, kind, part) }, elements: part,
		})
	}
}

func (j *job) add(stage int, o op) {
	o.job, o.size = j, messageSize+elementSize*len(o.elements)
	j.ops[stage] = append(j.ops[stage], o)
}

// messageSize bounds a message without elements.
const messageSize = 192

// hashSize returns the number of buckets to create a set with: the kernel
// doubles them, and moves all elements, as they fill up.
func hashSize(elements int) int { return min(max(64, powerOfTwo(elements)), 1<<20) }

func powerOfTwo(n int) int { return 1 << bits.Len(uint(max(n-1, 0))) }

// temporaryName returns the name under which the new content of a set is
// built before it is swapped in.
func temporaryName(name string) string {
	return ipsets.KernelPrefix + "~" + strings.TrimPrefix(name, ipsets.KernelPrefix)
}
