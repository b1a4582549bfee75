package ctl

import (
	"testing"

	"github.com/felixlike/felixlike/cni/install"
	"github.com/felixlike/felixlike/felixlike/config"
	"github.com/felixlike/felixlike/felixlike/control"
)

// TestOffloadFindings: check has the agent's reason why packets of established connections do not skip the host.
func TestOffloadFindings(t *testing.T) {
	for _, c := range []struct {
		setting string
		now     *control.Offload
		level   install.Level
		detail  string
	}{
		{config.OffloadAuto, &control.Offload{Setting: config.OffloadAuto, Active: true}, install.Good, "the bridge switches packets of established connections"},
		{config.OffloadAuto, &control.Offload{Setting: config.OffloadAuto, Why: "x"}, install.Noted, "packets of established connections take the way through the host: x"},
		{config.OffloadAuto, &control.Offload{Setting: config.OffloadOff}, install.Good, ""},
		{config.OffloadOff, nil, install.Good, ""},
		{config.OffloadOn, nil, install.Good, ""},
	} {
		found := offloadFindings(t.Context(), c.setting, c.now)
		if c.detail == "" {
			if len(found) > 0 {
				t.Errorf("%s, %+v: %+v", c.setting, c.now, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Level != c.level || found[0].Detail != c.detail {
			t.Errorf("%s, %+v: %+v", c.setting, c.now, found)
		}
	}
}
