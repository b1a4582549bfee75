package backend

import (
	"fmt"

	"github.com/felixlike/felixlike/ovsfwd/pipeline"
)

// Place is where packets are judged.
type Place uint8

// The enforcement points. For netfilter backends, the bridge sends packets through the host:
// all, or with offload those of connections that policy has not allowed yet. The backend in
// the switch judges packets in the bridge.
const (
	InKernel Place = iota
	InSwitch
)

// String returns the name for people.
func (p Place) String() string {
	switch p {
	case InKernel:
		return "kernel"
	case InSwitch:
		return "switch"
	}
	return fmt.Sprintf("place(%d)", uint8(p))
}

// Mode is the pipeline that leads packets through the place.
func (p Place) Mode() pipeline.Mode {
	if p == InSwitch {
		return pipeline.Full
	}
	return pipeline.Steer
}

// Way are the modes that a change to the place passes, one after the other. The last one is Mode.
func (p Place) Way() []pipeline.Mode {
	if p == InSwitch {
		return []pipeline.Mode{pipeline.BeginsInHost, pipeline.BeginsInSwitch, pipeline.Full}
	}
	return []pipeline.Mode{pipeline.BeginsInSwitch, pipeline.BeginsInHost, pipeline.Steer}
}
