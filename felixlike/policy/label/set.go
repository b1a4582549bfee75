package label

import (
	"encoding/binary"
	"slices"
)

// pair is a key with its value.
type pair struct{ key, value string }

// Set is the labels of an object, sorted by key. Equal label sets share one Set, because
// a cluster has far fewer of them than pods.
type Set struct {
	// text is unique to the set. The strings of the labels are parts of it.
	text   string
	labels []pair
	refs   int
}

// Get returns the value of a key. No set has none.
func (s *Set) Get(key string) (string, bool) {
	if s == nil {
		return "", false
	}
	for _, l := range s.labels {
		if l.key == key {
			return l.value, true
		}
	}
	return "", false
}

// Sets stores the label sets that are in use.
type Sets struct {
	byText map[string]*Set
	// keys and text are buffers of Intern.
	keys []string
	text []byte
}

// NewSets returns an empty store.
func NewSets() *Sets { return &Sets{byText: map[string]*Set{}} }

// Len returns the number of label sets.
func (p *Sets) Len() int { return len(p.byText) }

// Intern returns the label set of a map. A caller that keeps it calls Hold.
func (p *Sets) Intern(labels map[string]string) *Set {
	p.keys, p.text = p.keys[:0], p.text[:0]
	for k := range labels {
		p.keys = append(p.keys, k)
	}
	slices.Sort(p.keys)
	for _, k := range p.keys {
		p.text = appendSized(p.text, k)
		p.text = appendSized(p.text, labels[k])
	}
	if s := p.byText[string(p.text)]; s != nil {
		return s
	}
	s := &Set{text: string(p.text)}
	if len(p.keys) > 0 {
		s.labels = make([]pair, len(p.keys))
	}
	rest := s.text
	for i := range s.labels {
		s.labels[i].key, rest = cutSized(rest)
		s.labels[i].value, rest = cutSized(rest)
	}
	clear(p.keys) // do not keep the strings of the object
	return s
}

// Hold counts a reference to a label set that Intern returned.
func (p *Sets) Hold(s *Set) {
	if s.refs == 0 {
		p.byText[s.text] = s
	}
	s.refs++
}

// Release gives back a reference, and removes the set with the last one.
func (p *Sets) Release(s *Set) {
	s.refs--
	if s.refs == 0 {
		delete(p.byText, s.text)
	}
}

// appendSized appends a string after its length. Labels of pods are not validated here,
// so no character could separate them.
func appendSized(text []byte, s string) []byte {
	return append(binary.AppendUvarint(text, uint64(len(s))), s...)
}

// cutSized removes the first string that appendSized appended.
func cutSized(text string) (s, rest string) {
	head := text[:min(len(text), binary.MaxVarintLen64)]
	size, n := binary.Uvarint([]byte(head))
	end := n + int(size)
	return text[n:end], text[end:]
}
