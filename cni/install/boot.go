package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/felixlike/felixlike/felixlike/hosts/boot"
)

// The unit by which a node that boots loads the policies of the node itself before its network is up, its directory on the node, and the folder of links
// there by which systemd starts it.
const (
	bootUnitName = "felixlike-hosts.service"
	unitDir      = "/etc/systemd/system"
	wantsDir     = "sysinit.target.wants"
)

// unitOf returns the unit. It orders itself as the units of host firewalls do, and after the one that flushes all rules. It never fails
// another unit: a node without these policies boots on.
func unitOf(binDir string) []byte {
	var out bytes.Buffer
	program := filepath.Join(binDir, ownPlugin)
	fmt.Fprintf(&out, `# Written by felixlike. felixctl hosts off turns these policies off, also for the next boot.
[Unit]
Description=Policies of this node that felixlike has confirmed last
Documentation=https://github.com/felixlike/felixlike/blob/main/docs/use/hosts.md
DefaultDependencies=no
RequiresMountsFor=%s %s
After=local-fs.target systemd-modules-load.service nftables.service
Wants=network-pre.target
Before=network-pre.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=60
ExecStart=%s %s %s

[Install]
WantedBy=sysinit.target
`, boot.Dir, binDir, program, boot.Command, boot.Dir)
	return out.Bytes()
}

// bootUnit installs the unit, if the node's directory for units is mounted. Without it the node works, so an error is only reported.
func (o Options) bootUnit(r Record, report func(Finding)) {
	what := "unit " + bootUnitName
	if o.UnitDir == "" {
		if len(r.Units) > 0 {
			report(Finding{Noted, what, "it is on this node since an earlier installation, and loads policies of the node at boot: remove it with systemctl disable and rm, if you do not want it"})
		}
		return
	}
	did, err := o.placeUnit(r)
	if err != nil {
		report(Finding{Noted, what, fmt.Sprintf("not installed, so this node is open from its boot until its agent starts: %v", err)})
		return
	}
	report(Finding{Good, what, did})
}

// placeUnit installs the unit and its link. A unit that an administrator has masked or disabled stays so.
func (o Options) placeUnit(r Record) (did string, err error) {
	path, link := filepath.Join(o.UnitDir, bootUnitName), filepath.Join(o.UnitDir, wantsDir, bootUnitName)
	switch at, err := os.Lstat(path); {
	case err == nil && at.Mode()&fs.ModeSymlink != 0:
		return "masked, left unchanged", nil
	case err == nil:
		if _, err := os.Lstat(link); errors.Is(err, fs.ErrNotExist) {
			return "disabled, left unchanged", nil
		}
	default: // the link first: a unit without it counts as disabled
		if err := os.Mkdir(filepath.Dir(link), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		if err := os.Symlink("../"+bootUnitName, link); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		if err := syncDir(filepath.Dir(link)); err != nil {
			return "", err
		}
	}
	return o.place(r, r.Units, path, unitOf(o.NodeBinDir), 0o644)
}

// unit removes the unit and its link.
func (l Leftovers) unit(_ context.Context, r Record) ([]string, error) {
	if len(r.Units) == 0 {
		return nil, nil
	}
	dir := filepath.Join(l.Root, unitDir)
	gone, err := removeAll(r.Units, dir)
	if _, there := os.Lstat(filepath.Join(dir, bootUnitName)); errors.Is(there, fs.ErrNotExist) {
		if removeErr := os.Remove(filepath.Join(dir, wantsDir, bootUnitName)); !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, removeErr)
		}
	}
	return gone, err
}
