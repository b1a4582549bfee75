package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Process is a process of a lab. Process ids come around again, so one is
// believed only together with its start time.
type Process struct {
	PID int `json:"pid"`
	// Start is in clock ticks since boot (field 22 of /proc/PID/stat).
	Start uint64 `json:"start"`
	What  string `json:"what"`
}

func processOf(pid int, what string) (Process, error) {
	start, err := startTime(pid)
	if err != nil {
		return Process{}, fmt.Errorf("%s, process %d: %w", what, pid, err)
	}
	return Process{PID: pid, Start: start, What: what}, nil
}

// Alive reports whether the process still runs; a zombie does not.
func (p Process) Alive() bool {
	start, err := startTime(p.PID)
	return err == nil && start == p.Start
}

// startTime returns when a process began; fs.ErrNotExist for a zombie.
func startTime(pid int) (uint64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the command in parentheses and may hold anything.
	_, rest, ok := strings.Cut(string(text[max(0, strings.LastIndexByte(string(text), ')')):]), " ")
	fields := strings.Fields(rest)
	// proc(5) counts from 1, and the fields here begin with its third.
	const state, starttime = 0, 19
	if !ok || len(fields) <= starttime {
		return 0, errors.New("unreadable /proc stat")
	}
	if fields[state] == "Z" || fields[state] == "X" {
		return 0, fs.ErrNotExist
	}
	return strconv.ParseUint(fields[starttime], 10, 64)
}

// record lists a lab's namespaces and processes in a file, so that a later process can
// remove them.
type record struct {
	mu   sync.Mutex
	path string
	recordData
}

type recordData struct {
	Name string `json:"name"`
	// Owner is the process that runs the lab.
	Owner      Process   `json:"owner"`
	Namespaces []string  `json:"namespaces"`
	Processes  []Process `json:"processes"`
}

func recordPath(dir string) string { return filepath.Join(dir, "lab.json") }

// newRecord writes a first record for a lab of this process.
func newRecord(dir, name string) (*record, error) {
	owner, err := processOf(os.Getpid(), "lab "+name)
	if err != nil {
		return nil, err
	}
	r := &record{path: recordPath(dir), recordData: recordData{Name: name, Owner: owner}}
	return r, r.save()
}

// readRecord reads the record of a lab; fs.ErrNotExist when there is none.
func readRecord(dir string) (*record, error) {
	r := &record{path: recordPath(dir)}
	text, err := os.ReadFile(r.path)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &r.recordData); err != nil {
		return nil, fmt.Errorf("lab record %s: %w", r.path, err)
	}
	return r, nil
}

func (r *record) save() error {
	text, err := json.MarshalIndent(r.recordData, "", "  ")
	if err != nil {
		return fmt.Errorf("lab record %s: %w", r.path, err)
	}
	if err := writeFile(r.path, text); err != nil {
		return fmt.Errorf("lab record: %w", err)
	}
	return nil
}

// addNamespace records a namespace that is about to be made.
func (r *record) addNamespace(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.Namespaces, name) {
		r.Namespaces = append(r.Namespaces, name)
	}
	return r.save()
}

// dropNamespace forgets a namespace that was deleted.
func (r *record) dropNamespace(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Namespaces = slices.DeleteFunc(r.Namespaces, func(n string) bool { return n == name })
	return r.save()
}

// addProcess records a process that was just started. One that a crash left
// out is found by its command line, which names the lab's folder.
func (r *record) addProcess(pid int, what string) error {
	p, err := processOf(pid, what)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Processes = append(slices.DeleteFunc(r.Processes, func(p Process) bool { return !p.Alive() }), p)
	return r.save()
}

// writeFile replaces a file at once: a reader sees the old text or the new.
func writeFile(path string, text []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = temp.Write(text)
	err = errors.Join(err, temp.Chmod(0o644), temp.Close())
	if err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return nil
}
