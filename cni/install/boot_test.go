package install

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestBootUnit: the unit is installed with its link if the node's directory is mounted, is one that systemd takes, and goes with the uninstallation, also if
// later installations did not have the directory.
func TestBootUnit(t *testing.T) {
	n := newNode(t)
	root := t.TempDir()
	n.StateDir = filepath.Join(root, stateDir)
	n.UnitDir, n.NodeBinDir = filepath.Join(root, unitDir), n.BinDir
	for _, dir := range []string{n.StateDir, n.UnitDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	n.install()
	unit := filepath.Join(n.UnitDir, bootUnitName)
	link := filepath.Join(n.UnitDir, wantsDir, bootUnitName)
	if at, err := filepath.EvalSymlinks(link); err != nil || at != unit {
		t.Errorf("the link leads to %q, %v", at, err)
	}
	if text, err := os.ReadFile(unit); err != nil || !strings.Contains(string(text), "\nExecStart="+n.BinDir+"/felixlike-cni restore-hosts /var/lib/felixlike/hosts\n") {
		t.Errorf("unit %s, %v", text, err)
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("systemd-analyze is not there: the unit's syntax is not checked")
	} else if out, err := exec.Command("systemd-analyze", "verify", "--man=no", unit).CombinedOutput(); err != nil || strings.Contains(string(out), bootUnitName) {
		t.Errorf("systemd-analyze: %v: %s", err, out)
	}
	n.install()
	// systemctl disable and mask hold.
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	n.install()
	if _, err := os.Lstat(link); err == nil {
		t.Error("a disabled unit is enabled again")
	}
	if err := errors.Join(os.Symlink("../"+bootUnitName, link), os.Rename(unit, unit+".away"), os.Symlink(os.DevNull, unit)); err != nil {
		t.Fatal(err)
	}
	n.install()
	if at, err := os.Readlink(unit); err != nil || at != os.DevNull {
		t.Errorf("a masked unit leads to %q, %v", at, err)
	}
	if err := errors.Join(os.Remove(unit), os.Rename(unit+".away", unit)); err != nil {
		t.Fatal(err)
	}
	n.UnitDir = filepath.Join(root, "none")
	n.install()
	if !slices.ContainsFunc(n.found, func(f Finding) bool {
		return f.Level == Noted && strings.HasPrefix(f.Detail, "not installed, so this node is open")
	}) {
		t.Errorf("without the directory: %v", n.found)
	}
	n.UnitDir = ""
	n.install()
	if _, err := os.Stat(unit); err != nil {
		t.Error(err)
	}
	n.put(filepath.Join(root, unitDir), "other.service", "theirs")
	if err := n.left(root).Remove(t.Context(), func(Finding) {}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{unit: false, link: false, filepath.Join(root, unitDir, "other.service"): true} {
		if _, err := os.Lstat(path); (err == nil) != want {
			t.Errorf("%s is there: %v", path, err == nil)
		}
	}
}
