package install

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// temporary ends the name of a file that is being written. Runtimes ignore files with
// this ending.
const temporary = ".felixlike-new"

// writeFile writes a file atomically: a reader gets the whole old file or the whole
// new one, also after a crash.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	next := path + temporary
	f, err := os.OpenFile(next, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = errors.Join(f.Chmod(mode), f.Sync())
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next))
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename outlast a crash of the machine.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// fileDigest returns the digest of a file, "" if it is not there.
func fileDigest(path string) (string, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("compare: %w", err)
	}
	return digestOf(data), nil
}

// removeOwn removes a file if it still has the recorded digest, takes it out of the
// list, and reports whether it was there.
func removeOwn(files map[string]string, path string) (bool, error) {
	name := filepath.Base(path)
	digest, err := fileDigest(path)
	if err != nil {
		return false, err
	}
	own := digest != "" && digest == files[name]
	if own {
		if err := os.Remove(path); err != nil {
			return false, fmt.Errorf("remove: %w", err)
		}
	}
	delete(files, name)
	return own, nil
}
