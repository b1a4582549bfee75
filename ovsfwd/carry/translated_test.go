package carry

import (
	"testing"

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
	if got := allowed([]conntrack.Connection{k, translated}, true).list; len(got) != 1 || got[0].Mark != 0 {
		t.Errorf("carried %+v", got)
	}
}
