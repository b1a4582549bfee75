package uplink

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/files"
)

// journal has the routes that Move took from an uplink. The kernel deletes the routes of an interface that
// is removed or set down. So without a journal, a node whose bridge another program removes would lose its
// default route for good. The addresses need no journal: the uplink keeps them.
//
// A journal is of no use after the uplink was made anew, or the node booted: then other programs configure it.
type journal struct {
	// Boot identifies the boot, Namespace the network namespace.
	Boot      string `json:"boot"`
	Namespace uint64 `json:"namespace"`
	Uplink    string `json:"uplink"`
	Index     int    `json:"index"`
	// Routes are those of both families to the prefixes of addresses and of other programs.
	Routes []netlink.Route `json:"routes"`
}

// mostJournal bounds the file in bytes: some 30,000 routes.
const mostJournal = 16 << 20

// bootID is the file with the kernel's identifier of this boot.
const bootID = "/proc/sys/kernel/random/boot_id"

// newJournal returns an empty journal of an uplink of the calling thread's network namespace.
func newJournal(link netlink.Link) (journal, error) {
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return journal{}, fmt.Errorf("identifier of this boot: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return journal{}, fmt.Errorf("identifier of the network namespace: %w", err)
	}
	return journal{Boot: strings.TrimSpace(string(boot)), Namespace: st.Ino, Uplink: link.Attrs().Name, Index: link.Attrs().Index}, nil
}

// readJournal returns the journal and its uplink. It returns no link if there is no journal, or if it is of
// no use any more. A file that is no journal counts as none: Move writes it again.
func (in In) readJournal() (journal, netlink.Link, error) {
	content, err := files.Read(in.file(journalFile), mostJournal)
	if errors.Is(err, os.ErrNotExist) {
		return journal{}, nil, nil
	}
	if err != nil {
		return journal{}, nil, fmt.Errorf("journal of the uplink: %w", err)
	}
	var j journal
	if json.Unmarshal(content, &j) != nil {
		return journal{}, nil, nil
	}
	link, err := netlink.LinkByName(j.Uplink)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return journal{}, nil, nil
	}
	if err != nil {
		return journal{}, nil, fmt.Errorf("uplink %s: %w", j.Uplink, err)
	}
	now, err := newJournal(link)
	if err != nil || now.Boot != j.Boot || now.Namespace != j.Namespace || now.Index != j.Index {
		return journal{}, nil, err
	}
	return j, link, nil
}

// write replaces the journal by one with these routes. It leaves out routes that JSON cannot hold: those
// with an encapsulation, several next hops, or a gateway of another family.
func (in In) write(uplink netlink.Link, all []netlink.Route) error {
	j, err := newJournal(uplink)
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.Via == nil && r.Encap == nil && r.NewDst == nil && len(r.MultiPath) == 0 {
			j.Routes = append(j.Routes, r)
		}
	}
	content, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("journal of the uplink: %w", err)
	}
	file := in.file(journalFile)
	if old, err := os.ReadFile(file); err == nil && string(old) == string(content) {
		return nil
	}
	temp := file + ".new"
	if err := errors.Join(os.WriteFile(temp, content, 0o600), os.Rename(temp, file)); err != nil {
		return fmt.Errorf("journal of the uplink: %w", err)
	}
	return nil
}

// erase removes the journal.
func (in In) erase() error {
	if err := os.Remove(in.file(journalFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("journal of the uplink: %w", err)
	}
	return nil
}

// replay gives the uplink the routes of its journal that the node lacks, and returns their number. The
// journal stays, so an interrupted replay is continued. A route that the kernel refuses stops no other
// one, and is in the error.
func replay(j journal, uplink netlink.Link) (made int, err error) {
	if err := netlink.LinkSetUp(uplink); err != nil {
		return 0, fmt.Errorf("set %s up: %w", j.Uplink, err)
	}
	// Connected routes first: gateways need them.
	slices.SortStableFunc(j.Routes, func(a, b netlink.Route) int { return len(a.Gw) - len(b.Gw) })
	var errs []error
	for _, r := range j.Routes {
		r.LinkIndex = uplink.Attrs().Index
		r.Flags &^= unix.RTNH_F_LINKDOWN | unix.RTNH_F_DEAD
		// Not if another route to this destination with this metric exists.
		switch err := netlink.RouteAdd(&r); {
		case err == nil:
			made++
		case !errors.Is(err, unix.EEXIST):
			errs = append(errs, fmt.Errorf("restore route %s: %w", r, err))
		}
	}
	return made, errors.Join(errs...)
}

// Forget removes lock and journal. It is for the removal from a node, after all movers have ended.
func (in In) Forget() error {
	err := in.erase()
	if errLock := os.Remove(in.file(lockFile)); errLock != nil && !errors.Is(errLock, os.ErrNotExist) {
		err = errors.Join(err, fmt.Errorf("remove the uplink's lock: %w", errLock))
	}
	return err
}

// restoreLost replays the journal of an uplink, and removes the journal. The error names routes that the
// kernel refuses: they are given up, because another try would fail as well, and hold back the bridge.
func (in In) restoreLost(name string) (int, error) {
	j, uplink, err := in.readJournal()
	if err != nil || uplink == nil || j.Uplink != name {
		return 0, err
	}
	made, refused := replay(j, uplink)
	return made, errors.Join(refused, in.erase())
}
