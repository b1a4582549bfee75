package wireguard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/felixlike/felixlike/internal/files"
	"github.com/felixlike/felixlike/model"
)

// KeyFile is the file with a node's private key, below the directory that the agent keeps over restarts.
const KeyFile = "wireguard/private.key"

// maxKeyFile is more than the notation of a key takes.
const maxKeyFile = 256

// Key is a node's private key. It has no text form, so that no log or report shows it by mistake.
type Key struct{ private wgtypes.Key }

// String says that the key is not shown.
func (Key) String() string { return "(private key)" }

// GoString says that the key is not shown.
func (k Key) GoString() string { return k.String() }

// Public returns the public key.
func (k Key) Public() model.PublicKey { return model.PublicKey(k.private.PublicKey()) }

// LoadKey reads the private key below a directory, in the notation of wg(8). Without a file it makes a key, and the file, which root
// alone may read. A file that holds no key stays as it is: a new key would cut off the node until all peers know it.
func LoadKey(dir string) (Key, error) {
	path := filepath.Join(dir, KeyFile)
	text, err := files.Read(path, maxKeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKey(path)
	}
	if err != nil {
		return Key{}, fmt.Errorf("private key of WireGuard: %w", err)
	}
	// The error of the parser may quote the text.
	private, err := wgtypes.ParseKey(strings.TrimSpace(string(text)))
	if err != nil || private == (wgtypes.Key{}) {
		return Key{}, fmt.Errorf("private key of WireGuard: %s holds no key of 32 bytes in base64: restore it, or remove it for a new key", path)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return Key{}, fmt.Errorf("private key of WireGuard: %w", err)
	}
	return Key{private}, nil
}

// makeKey makes a key and its file. The file appears whole.
func makeKey(path string) (Key, error) {
	private, err := wgtypes.GeneratePrivateKey()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o700)
	}
	if err == nil {
		err = writeWhole(path, private.String()+"\n")
	}
	if err != nil {
		return Key{}, fmt.Errorf("make the private key of WireGuard: %w", err)
	}
	return Key{private}, nil
}

// writeWhole writes a new file that only root may read.
func writeWhole(path, text string) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
