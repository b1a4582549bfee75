package carry

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/felixlike/felixlike/ovsfwd/conntrack"
	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// TestTranslatedIsNotCarried: the kernel gets no entry for a connection that the switch translates. It would lead the packets past
// the translation.
func TestTranslatedIsNotCarried(t *testing.T) {
	k := conntrack.Connection{Label: allowedLabel(), Replied: true}
	k.Original.Protocol = 17
	translated := k
	translated.Mark = pipeline.SNATMark
	k.Original.SrcPort = 1
	k.Timeout, translated.Timeout = 100, 100
	if got := allowed([]conntrack.Connection{k, translated}, nil, true, false, &sight{}).list; len(got) != 1 || got[0].Mark != 0 {
		t.Errorf("carried %+v", got)
	}
}

// wrongTuples are translations by which the unanswered entries among these are wrong.
type wrongTuples []conntrack.Tuple

func (w wrongTuples) Wrong(k *conntrack.Connection, _ func(netip.Addr) bool, _ bool) bool {
	return !k.Replied && slices.Contains(w, k.Original)
}
func (w wrongTuples) Switched() bool                           { return false }
func (w wrongTuples) WrongInSwitch(*conntrack.Connection) bool { return false }
func (w wrongTuples) WrongAddress(*conntrack.Connection) bool  { return false }

// TestSourcesThatChangeMeanwhile: a connection that has begun by newer sources than those of the look goes on, and so does one that gets
// its answer meanwhile.
func TestSourcesThatChangeMeanwhile(t *testing.T) {
	c, k := kernelNode(t)
	unanswered := func(port string) conntrack.Connection {
		one := connection(unix.IPPROTO_TCP, "10.10.0.2:"+port, "203.0.113.9:80", "203.0.113.9:80", "172.16.9.100:"+port)
		one.State, one.Replied, one.Timeout = conntrack.StateSynSent, false, 20*time.Second
		return one
	}
	both, older, newer, answered := unanswered("1"), unanswered("2"), unanswered("3"), unanswered("4")
	write(t, k, inKernel(both), inKernel(older), inKernel(newer), inKernel(answered))
	now := wrongTuples{both.Original, older.Original, answered.Original}
	end := func(latest func() Translations) int {
		t.Helper()
		n, err := c.EndTranslations(t.Context(), now, false, latest)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	if n := end(func() Translations { return nil }); n != 0 {
		t.Errorf("%d entries ended without knowing the sources", n)
	}
	n := end(func() Translations {
		if _, err := k.Delete([]conntrack.Connection{answered}); err != nil {
			t.Error(err)
		}
		answered.State, answered.Replied, answered.Timeout = conntrack.StateEstablished, true, time.Hour
		write(t, k, inKernel(answered))
		return wrongTuples{both.Original, newer.Original, answered.Original}
	})
	if n != 1 {
		t.Errorf("%d entries ended, want 1", n)
	}
	wantKnown(t, k, 0, older.Original, newer.Original, answered.Original)
}
