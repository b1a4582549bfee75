package kernel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/internal/nfnetlink"
	"github.com/felixlike/felixlike/ipsets"
	"github.com/felixlike/felixlike/tables"
)

// nf_tables releases the set of a deleted rule one RCU grace period after the commit
// (nf_tables_trans_destroy_work). If a set is in use at the first try, destroy tries
// again within this time.
const (
	patience = 200 * time.Millisecond
	pause    = 5 * time.Millisecond
)

// ApplyDeletions destroys our sets that are not desired, also those left by a crash or
// another version. Call it after the rules that named them are gone. A set in use stays
// for a later call, and is no error, see Leftovers.
func (s *Sets) ApplyDeletions(ctx context.Context) (tables.Result, error) {
	start := time.Now()
	var result tables.Result
	err := s.deleteObsolete(ctx, &result)
	result.Duration = time.Since(start)
	if err != nil {
		return result, s.fail(fmt.Errorf("destroy ip sets: %w", err))
	}
	return result, nil
}

func (s *Sets) deleteObsolete(ctx context.Context, result *tables.Result) error {
	if s.guest || s.known && len(s.obsolete) == 0 {
		return nil
	}
	if err := s.connect(); err != nil {
		return err
	}
	if !s.known {
		result.FullRead = true
		if err := s.read(ctx); err != nil {
			return err
		}
	}
	now := s.now()
	due := slices.DeleteFunc(sorted(s.obsolete), func(name string) bool { return !s.obsolete[name].Due(now) })
	wait := time.Duration(0)
	if slices.ContainsFunc(due, func(name string) bool { return s.obsolete[name].Attempts == 0 }) {
		wait = patience
	}
	inUse, err := s.destroy(ctx, due, wait, result)
	if err != nil {
		return err
	}
	pending := map[string]string{}
	for name, t := range s.sets {
		if !t.desired {
			pending[ipsets.KernelName(name)] = name
		}
	}
	for _, name := range due {
		if slices.Contains(inUse, name) {
			s.obsolete[name].Refused(now)
			continue
		}
		delete(s.obsolete, name)
		delete(s.observed, name)
		if set, ok := pending[name]; ok {
			delete(s.sets, set)
		}
	}
	return nil
}

// Remove destroys all sets of ours. The rules that name them must be gone. The desired
// state stays recorded: a later apply programs it again.
func (s *Sets) Remove(ctx context.Context) error {
	if err := s.connect(); err != nil {
		return err
	}
	if err := s.read(ctx); err != nil {
		return s.fail(err)
	}
	inUse, err := s.destroy(ctx, sorted(s.observed), patience, &tables.Result{})
	s.forget()
	if err != nil {
		return s.fail(fmt.Errorf("destroy ip sets: %w", err))
	}
	if len(inUse) > 0 {
		return fmt.Errorf("destroy ip sets: still in use: %s", strings.Join(inUse, ", "))
	}
	return nil
}

// destroy destroys the kernel's sets of these names, many at once. It returns the sets
// that are still in use after the wait.
func (s *Sets) destroy(ctx context.Context, names []string, wait time.Duration, result *tables.Result) (inUse []string, err error) {
	for deadline := time.Now().Add(wait); len(names) > 0; {
		inUse = nil
		for part := range slices.Chunk(names, messagesAtOnce) {
			busy, err := s.destroyAtOnce(ctx, part, result)
			if err != nil {
				return nil, err
			}
			inUse = append(inUse, busy...)
		}
		if len(inUse) == 0 || time.Now().After(deadline) {
			return inUse, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
		names = inUse
	}
	return nil, nil
}

func (s *Sets) destroyAtOnce(ctx context.Context, names []string, result *tables.Result) (busy []string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var m nfnetlink.Messages
	for _, name := range names {
		writeDestroy(&m, name)
	}
	var failures []error
	err = s.conn.Do(&m, func(i int, code unix.Errno, _ []byte) {
		switch {
		case refersTo(code):
			busy = append(busy, names[i])
		case code == 0:
			result.Messages++
		case code != unix.ENOENT:
			failures = append(failures, fmt.Errorf("ip set %s: %w", names[i], errorOf(code)))
		}
	})
	return busy, errors.Join(append(failures, err)...)
}
