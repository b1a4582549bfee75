package boot

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/felixlike/felixlike/internal/files"
	"github.com/felixlike/felixlike/model"
)

// The files in the agent's directory for these policies: the record, the one that it has replaced, and the one by which an administrator turns the
// policies off.
const (
	RecordFile   = "record.json"
	PreviousFile = "record.json.previous"
	OffFile      = "off"
)

// MaxRecord bounds the record in bytes.
const MaxRecord = 64 << 20

// MaxRetries bounds how often a policy is tried again that may have been withdrawn because of an outage.
const MaxRetries = 3

// Record is the content of the record.
type Record struct {
	// Confirmed are the last policies with which the node was seen to work, Trial those that are being tried.
	Confirmed *model.HostPolicies `json:"confirmed,omitempty"`
	Trial     *model.HostPolicies `json:"trial,omitempty"`
	// Since is when the trial began. Policies that replace those of the trial continue it. It is zero in the record of an older agent.
	Since time.Time `json:"since,omitzero"`
	// Failsafe and TrafficMode are settings of the agent that wrote the record.
	Failsafe    *model.Failsafe   `json:"failsafe,omitempty"`
	TrafficMode model.TrafficMode `json:"trafficMode,omitempty"`
	// Withdrawn is the fingerprint of policies that were withdrawn, Changed those that differ from the confirmed ones, and Reason why.
	Withdrawn string           `json:"withdrawn,omitempty"`
	Changed   []model.PolicyID `json:"changed,omitempty"`
	Reason    string           `json:"reason,omitempty"`
	// Unproven is set while nothing shows that the withdrawn policies are the reason.
	Unproven bool `json:"unproven,omitempty"`
	// Kubelet is set if they were withdrawn because kubelet did not renew the Lease of its node.
	Kubelet bool `json:"kubelet,omitempty"`
	// Retried is the fingerprint of unproven policies that were tried again, Retries how often.
	Retried string `json:"retried,omitempty"`
	Retries int    `json:"retries,omitempty"`
}

// RetriesOf returns how often policies with a fingerprint were tried again.
func (r *Record) RetriesOf(fingerprint string) int {
	if r.Retried != fingerprint {
		return 0
	}
	return r.Retries
}

// WillRetry reports whether the withdrawn policies are tried again although they do not change.
func (r *Record) WillRetry() bool { return r.Unproven && r.RetriesOf(r.Withdrawn) < MaxRetries }

// Read reads the record of a directory. If it cannot be read, it returns the one before, and fault says why. Without either it returns an empty one, and
// no fault.
func Read(dir string) (r Record, fault error) {
	r, err := read(filepath.Join(dir, RecordFile))
	if err == nil {
		return r, nil
	}
	r, before := read(filepath.Join(dir, PreviousFile))
	switch {
	case before == nil:
		return r, err
	case errors.Is(err, fs.ErrNotExist) && errors.Is(before, fs.ErrNotExist):
		return r, nil
	}
	return r, errors.Join(err, before)
}

func read(path string) (r Record, err error) {
	data, err := files.Read(path, MaxRecord)
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return Record{}, err
	}
	return r, nil
}

// Off reports whether the file is there by which an administrator turns the policies off. If nobody can say, they stay in force.
func Off(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, OffFile))
	return err == nil
}
