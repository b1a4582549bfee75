package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/namespace"
)

// ErrInUse is returned when another live process runs the lab.
var ErrInUse = errors.New("in use by another process")

const (
	ownerGrace   = 20 * time.Second
	processGrace = 3 * time.Second
)

// ErrNoLab is returned for a name that no lab has.
var ErrNoLab = errors.New("there is no such lab")

// Exists returns ErrNoLab, with the names of the labs that there are, unless there is a
// lab of that name below root, running or left over.
func Exists(root, name string) error {
	names, err := List(root)
	switch {
	case err != nil:
		return err
	case slices.Contains(names, name):
		return nil
	case len(names) == 0:
		return fmt.Errorf("lab %s: %w", name, ErrNoLab)
	}
	return fmt.Errorf("lab %s: %w, but %s", name, ErrNoLab, strings.Join(names, ", "))
}

// Alive reports whether a live process runs the lab.
func Alive(root, name string) bool {
	r, err := readRecord(filepath.Join(root, name))
	return err == nil && r.Owner.Alive()
}

// Cleanup removes any lab: it asks a live owner to end, ends the
// recorded processes, deletes the recorded namespaces and the lab's folder. A
// missing lab is no error, so Cleanup may be repeated.
func Cleanup(root, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	dir := filepath.Join(root, name)
	r, err := readRecord(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return removeDir(root, dir)
	}
	if err != nil {
		return err
	}
	if r.Owner.Alive() && r.Owner.PID != os.Getpid() {
		if err := endProcess(r.Owner, ownerGrace); err != nil {
			return err
		}
	}
	return r.undo(root, dir)
}

// CleanupDead removes the labs below root with the name prefix and a dead
// owner.
func CleanupDead(root, prefix string) error {
	names, err := List(root)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		r, err := readRecord(filepath.Join(root, name))
		if err == nil && !r.Owner.Alive() {
			errs = append(errs, r.undo(root, filepath.Join(root, name)))
		}
	}
	return errors.Join(errs...)
}

// List returns the names of the labs below root, dead ones too.
func List(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list labs: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// undo removes the objects in the record. The folder goes last: until then an
// interrupted cleanup can be done again.
func (r *record) undo(root, dir string) error {
	var errs []error
	processes := slices.Clone(r.Processes)
	strays, err := unrecorded(dir)
	errs = append(errs, err)
	processes = append(processes, strays...)
	for _, p := range processes {
		errs = append(errs, endProcess(p, processGrace))
	}
	for _, ns := range r.Namespaces {
		errs = append(errs, namespace.Delete(ns))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up lab %s: %w", r.Name, err)
	}
	return removeDir(root, dir)
}

// programs are those that a lab starts. unrecorded looks for no others.
func programs() []string {
	return []string{"ovsdb-server", "ovs-vswitchd", "felixlike-agent", "nsenter"}
}

// unrecorded finds processes of the lab that were started just before a crash
// and so did not get into the record: programs of a lab with an argument that
// names a file below the lab's folder.
func unrecorded(dir string) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w", err)
	}
	var found []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A process that ends meanwhile has no command line: not ours to end.
		cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !ownCommand(cmdline, dir) {
			continue
		}
		if p, err := processOf(pid, "unrecorded child"); err == nil {
			found = append(found, p)
		}
	}
	return found, nil
}

func ownCommand(cmdline []byte, dir string) bool {
	args := bytes.Split(cmdline, []byte{0})
	if !slices.Contains(programs(), filepath.Base(string(args[0]))) {
		return false
	}
	for _, arg := range args[1:] {
		_, value, _ := strings.Cut(string(arg), "=")
		if strings.HasPrefix(value, dir+"/") || strings.HasPrefix(string(arg), dir+"/") {
			return true
		}
	}
	return false
}

// endProcess asks a process to end and kills it when it does not in time.
func endProcess(p Process, grace time.Duration) error {
	for _, step := range []struct {
		signal syscall.Signal
		wait   time.Duration
	}{{syscall.SIGTERM, grace}, {syscall.SIGKILL, processGrace}} {
		if !p.Alive() {
			return nil
		}
		if err := unix.Kill(p.PID, step.signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("end %s, process %d: %w", p.What, p.PID, err)
		}
		for deadline := time.Now().Add(step.wait); p.Alive() && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
	}
	if p.Alive() {
		return fmt.Errorf("end %s: process %d does not end", p.What, p.PID)
	}
	return nil
}

// removeDir deletes a lab's folder, and the root if it was the last one.
func removeDir(root, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove lab folder: %w", err)
	}
	// A root that is not empty, or not there, stays as it is.
	_ = os.Remove(root)
	return nil
}
