package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"

	"github.com/felixlike/felixlike/felixlike/hosts/boot"
)

func (m *Module) path(name string) string { return filepath.Join(m.Dir, name) }

// save writes the record, and keeps the one before. A reboot finds the old one or the new one. The caller holds saving, and not mu: a disk that
// hangs must not stop the loop.
func (m *Module) save(r boot.Record) error {
	data, err := json.Marshal(r)
	if err == nil && len(data) > boot.MaxRecord {
		err = fmt.Errorf("the record of policies and members has %d bytes, more than %d", len(data), boot.MaxRecord)
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return err
	}
	next := m.path("." + boot.RecordFile + ".next")
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(m.path(boot.RecordFile), m.path(boot.PreviousFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(next, m.path(boot.RecordFile)); err != nil {
		return err
	}
	dir, err := os.Open(m.Dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// recordSettings records other settings than those of the agent before this one: the node loads them when it boots.
func (m *Module) recordSettings() {
	m.mu.Lock()
	same := m.damaged || m.record.Confirmed == nil || m.record.TrafficMode == m.TrafficMode && reflect.DeepEqual(m.record.Failsafe, &m.Failsafe)
	m.mu.Unlock()
	if same {
		return
	}
	if err := m.write(); err != nil {
		m.Log.Error("settings for the policies of this node cannot be recorded: until the agent starts after a reboot, older ones count", "error", err)
	}
}

// write writes the record as it is now.
func (m *Module) write() error {
	m.saving.Lock()
	defer m.saving.Unlock()
	m.mu.Lock()
	now := m.record
	now.Failsafe, now.TrafficMode = &m.Failsafe, m.TrafficMode
	m.mu.Unlock()
	return m.save(now)
}

// watchMembers records other members of the confirmed policies once the API server answers with them: after a reboot they are in force.
func (m *Module) watchMembers(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.moved:
		}
		for m.recordMembers(ctx) != nil {
			if !pause(ctx, every) {
				return nil
			}
		}
		if !pause(ctx, membersEvery) {
			return nil
		}
	}
}

// recordMembers records the members of the confirmed policies. It fails while the API server does not answer.
func (m *Module) recordMembers(ctx context.Context) error {
	m.mu.Lock()
	p := m.members
	m.mu.Unlock()
	if p == nil {
		return nil
	}
	if err := m.reach(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	same := m.members == p
	if same {
		m.members, m.record.Confirmed = nil, p
	}
	m.mu.Unlock()
	if !same {
		return nil // programmed has given the signal again
	}
	if err := m.write(); err != nil {
		m.Log.Error("other members of the peers of this node's policies cannot be recorded: after a reboot, older ones are in force first", "error", err)
	}
	return nil
}
