package ovsdaemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// createDB makes the database, or brings one of an earlier version of Open
// vSwitch to the schema of this one. If ovsdb-server could not read the database, it
// makes a new one and keeps the old one as evidence: see replaceUnreadable.
func (d *Daemons) createDB(ctx context.Context) error {
	_, err := os.Stat(d.database())
	if errors.Is(err, fs.ErrNotExist) {
		return d.newDB(ctx)
	}
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	_, err = d.output(ctx, "ovsdb-tool", "db-name", d.database())
	if d.damaged(err) {
		return d.replaceUnreadable(ctx, err)
	}
	if err != nil || d.opts.DatabaseDir == d.opts.Dir {
		return err // in the run directory it was made by the same Open vSwitch
	}
	out, err := d.output(ctx, "ovsdb-tool", "needs-conversion", d.database(), d.opts.Schema)
	if err != nil || strings.TrimSpace(out) != "yes" {
		return err
	}
	err = d.run(ctx, "ovsdb-tool", "convert", d.database(), d.opts.Schema)
	if d.damaged(err) { // a crash has cut the last transaction, which the tool refuses
		return d.replaceUnreadable(ctx, err)
	}
	return err
}

// damaged reports whether ovsdb-tool says that the database itself is at fault. Any other
// failure, as of a tool that lacks memory or may not read the file, says nothing about it.
func (d *Daemons) damaged(err error) bool {
	refused := new(exec.ExitError)
	if !errors.As(err, &refused) || refused.ExitCode() != 1 {
		return false
	}
	_, reason, named := strings.Cut(err.Error(), " error: "+d.database()+": ")
	return named && slices.ContainsFunc([]string{
		"cannot identify file type", "unexpected file format", "(End of file)", "have SHA-1 hash", "parse error at offset",
	}, func(sign string) bool { return strings.Contains(reason, sign) })
}

// replaceUnreadable replaces a database that cannot be read. The new one is empty: the agent makes
// the bridge again, and puts the ports of pods back.
func (d *Daemons) replaceUnreadable(ctx context.Context, reason error) error {
	aside := d.database() + ".unreadable"
	if _, err := os.Stat(aside); err == nil {
		aside += ".last" // the first one has the most information
	}
	if err := os.Rename(d.database(), aside); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	d.unreadable = fmt.Errorf("%w; it is kept as %s", reason, aside)
	return d.newDB(ctx)
}

func (d *Daemons) database() string { return filepath.Join(d.opts.DatabaseDir, "conf.db") }

// newDB makes the database under another name first: half of one, left by a crash,
// would keep Open vSwitch from starting ever again.
func (d *Daemons) newDB(ctx context.Context) error {
	next := d.database() + ".new"
	// The tool takes a file that is there for a mistake, and leaves its lock behind.
	lock := filepath.Join(d.opts.DatabaseDir, ".conf.db.new.~lock~")
	if err := remove(next, lock); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	err := d.run(ctx, "ovsdb-tool", "create", next, d.opts.Schema)
	if err == nil {
		err = flush(next)
	}
	if err == nil {
		err = os.Rename(next, d.database())
	}
	if err == nil {
		err = flush(d.opts.DatabaseDir)
	}
	if err := errors.Join(err, remove(next, lock)); err != nil {
		return fmt.Errorf("database: %w", err)
	}
	return nil
}

// flush makes a file, or the names in a directory, outlast a crash of the machine.
func flush(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// remove removes files that may be gone.
func remove(paths ...string) error {
	for _, path := range paths {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
