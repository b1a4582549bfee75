package policy

import (
	"encoding/binary"
	"slices"
)

// label is a key with its value.
type label struct{ key, value string }

// labelSet is the labels of an object, sorted by key. Equal label sets are
// one: a cluster has far fewer of them than pods.
type labelSet struct {
	// text stands for the set; the labels are pieces of it.
	text   string
	labels []label
	refs   int
}

// get returns the value of a key.
func (s *labelSet) get(key string) (string, bool) {
	for _, l := range s.labels {
		if l.key == key {
			return l.value, true
		}
	}
	return "", false
}

// labelSets holds the label sets that anything refers to.
type labelSets struct {
	byText map[string]*labelSet
	// keys and text are reused by intern.
	keys []string
	text []byte
}

// intern returns the label set of a map. Whoever keeps it holds it.
func (p *labelSets) intern(labels map[string]string) *labelSet {
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
	s := &labelSet{text: string(p.text)}
	if len(p.keys) > 0 {
		s.labels = make([]label, len(p.keys))
	}
	rest := s.text
	for i := range s.labels {
		s.labels[i].key, rest = cutSized(rest)
		s.labels[i].value, rest = cutSized(rest)
	}
	clear(p.keys) // do not keep the strings of the object
	return s
}

// hold counts a reference to a label set that intern returned.
func (p *labelSets) hold(s *labelSet) {
	if s.refs == 0 {
		p.byText[s.text] = s
	}
	s.refs++
}

func (p *labelSets) release(s *labelSet) {
	s.refs--
	if s.refs == 0 {
		delete(p.byText, s.text)
	}
}

// appendSized appends a string with its length before it: nobody has validated
// the labels of a pod, so no character could part them. cutSized undoes it.
func appendSized(text []byte, s string) []byte {
	return append(binary.AppendUvarint(text, uint64(len(s))), s...)
}

func cutSized(text string) (s, rest string) {
	head := text[:min(len(text), binary.MaxVarintLen64)]
	size, n := binary.Uvarint([]byte(head))
	end := n + int(size)
	return text[n:end], text[end:]
}
