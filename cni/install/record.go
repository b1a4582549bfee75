package install

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// recordFile is the record's name in the state directory.
const recordFile = "installed.json"

// Record lists the files put on the node, and the node's settings before that.
type Record struct {
	// Plugins and Configs are the digests of the files written to the two
	// directories, by name. A file with another digest belongs to others.
	Plugins map[string]string `json:"plugins"`
	Configs map[string]string `json:"configs"`
	// Units are the digests of the files in the node's directory for units of systemd.
	Units map[string]string `json:"units,omitempty"`
	// Settings are the node-wide kernel settings that the agent changes, as they
	// were before the first installation.
	Settings map[string]string `json:"settings"`
}

// readRecord returns the record in a state directory; an empty one if there is
// none.
func readRecord(stateDir string) (Record, error) {
	r := Record{Plugins: map[string]string{}, Configs: map[string]string{}, Units: map[string]string{}, Settings: map[string]string{}}
	path := filepath.Join(stateDir, recordFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, fmt.Errorf("record of installed files, %s: %w", path, err)
	}
	return r, nil
}

func (r Record) write(stateDir string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = writeFile(filepath.Join(stateDir, recordFile), append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("record of installed files: %w", err)
	}
	return nil
}
