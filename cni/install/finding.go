package install

import "fmt"

// Level says how much a finding matters.
type Level uint8

const (
	// Good: no problem.
	Good Level = iota + 1
	// Noted: felixlike works, but slower or differently than one may expect.
	Noted
	// Missing: felixlike cannot work on this node.
	Missing
)

// String returns the word that begins a finding's line.
func (l Level) String() string {
	switch l {
	case Good:
		return "ok"
	case Noted:
		return "note"
	case Missing:
		return "MISSING"
	}
	return fmt.Sprintf("level(%d)", uint8(l))
}

// MarshalText writes the word.
func (l Level) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// Finding is the result of one check or one step on the node.
type Finding struct {
	Level Level `json:"level"`
	// What is the subject of the check, for example a kernel module.
	What   string `json:"what"`
	Detail string `json:"detail"`
}

// String returns the finding as a line.
func (f Finding) String() string { return fmt.Sprintf("%-7s %s: %s", f.Level, f.What, f.Detail) }
