package openflow

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/felixlike/felixlike/model"
)

func TestEffects(t *testing.T) {
	spec := CTSpec{Commit: true, Zone: 7, Table: 61}
	learned := LearnSpec{Table: 32, Priority: 1, Cookie: 9}
	for _, c := range []struct {
		action Action
		want   Effect
	}{
		{SetBits(Reg0, 3, 1), SetEffect{Term{Reg0, uint32Bytes(1), uint32Bytes(1)}}},
		{Copy(EthSrc, EthDst), CopyEffect{EthSrc, EthDst}},
		{DecTTL(), TTLEffect{}},
		{OutputNormal(), OutputEffect{Port: PortNormal}},
		{OutputInPort(), OutputEffect{Port: PortIn}},
		{OutputRegister(Reg1), OutputEffect{Register: Reg1}},
		{GotoTable(3), GotoEffect{3}},
		{Resubmit(4), ResubmitEffect{4}},
		{CT(spec), CTEffect{spec}},
		{CTClear(), CTClearEffect{}},
		{Conjunction(5, 1, 2), ConjunctionEffect{5, 1, 2}},
		{Learn(learned), LearnEffect{learned}},
	} {
		got, err := EffectOf(c.action)
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(Match{})); diff != "" || err != nil {
			t.Errorf("%s: %v %s", c.action, err, diff)
		}
	}
	if _, err := EffectOf(nil); err == nil {
		t.Error("no action has an effect")
	}
}

func TestTerms(t *testing.T) {
	m := IPv4().Protocol(model.TCP).Prefix(IPv4Src, netip.MustParsePrefix("10.0.0.0/8")).Bits(Reg0, 1, 1)
	var got []string
	for _, term := range m.Terms() {
		got = append(got, term.String())
	}
	want := []string{"reg0=0x1/0x1", "dl_type=0x800", "nw_proto=6", "nw_src=10.0.0.0/8"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
