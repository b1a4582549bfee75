package hosts

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/felixlike/felixlike/internal/files"
	"github.com/felixlike/felixlike/model"
)

// record is the content of the file.
type record struct {
	// Confirmed are the last policies with which the node was seen to work, Trial those that are being tried.
	Confirmed *model.HostPolicies `json:"confirmed,omitempty"`
	Trial     *model.HostPolicies `json:"trial,omitempty"`
	// Withdrawn is the fingerprint of policies that were withdrawn, Changed those that differ from the confirmed ones, and Reason why.
	Withdrawn string           `json:"withdrawn,omitempty"`
	Changed   []model.PolicyID `json:"changed,omitempty"`
	Reason    string           `json:"reason,omitempty"`
	// Unproven is set while nothing shows that the withdrawn policies are why the API server did not answer.
	Unproven bool `json:"unproven,omitempty"`
	// Retried is the fingerprint of unproven policies that were tried again, Retries how often.
	Retried string `json:"retried,omitempty"`
	Retries int    `json:"retries,omitempty"`
}

// retries returns how often policies with a fingerprint were tried again.
func (r *record) retries(fingerprint string) int {
	if r.Retried != fingerprint {
		return 0
	}
	return r.Retries
}

// willRetry reports whether the withdrawn policies are tried again although they do not change.
func (r *record) willRetry() bool { return r.Unproven && r.retries(r.Withdrawn) < maxRetries }

func (m *Module) path(name string) string { return filepath.Join(m.Dir, name) }

// read reads a record, which is empty if it cannot be read.
func (m *Module) read(name string) (r record, err error) {
	data, err := files.Read(m.path(name), maxRecord)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return record{}, err
	}
	return r, nil
}

// save writes the record, and keeps the one before. A reboot finds the old one or the new one. The caller holds saving, and not mu: a disk that
// hangs must not stop the loop.
func (m *Module) save(r record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return err
	}
	next := m.path("." + recordName + ".next")
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(m.path(recordName), m.path(previousName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(next, m.path(recordName)); err != nil {
		return err
	}
	dir, err := os.Open(m.Dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// write writes the record as it is now.
func (m *Module) write() error {
	m.saving.Lock()
	defer m.saving.Unlock()
	m.mu.Lock()
	now := m.record
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
