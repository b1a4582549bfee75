package bench

import (
	"fmt"

	"github.com/felixlike/felixlike/test/bench/worker"
	"github.com/felixlike/felixlike/test/measure"
	"github.com/felixlike/felixlike/test/workloads"
)

// run is a run that is going on.
type run struct {
	Config
	calibration measure.Series
	turns       []turn
	engineTurns []engineTurn
}

// takeTurn does something between two calibrations.
func (r *run) takeTurn(round int, name string, do func() error) error {
	r.Progress.Turn(round+1, r.Rounds, name)
	err := do()
	r.Progress.Done()
	if err != nil {
		return fmt.Errorf("round %d, %s: %w", round+1, name, err)
	}
	r.calibration = append(r.calibration, calibrate())
	return nil
}

func (r *run) add(backend, tool string, m worker.Measurement) {
	r.turns = append(r.turns, turn{
		resultKey: resultKey{backend, m.Case}, Measurement: m, tool: tool, slot: r.slot(),
	})
}

// slot numbers the turns: it is that of the calibration before.
func (r *run) slot() int { return len(r.calibration) - 1 }

// resultKey names a result.
type resultKey struct {
	backend string
	c       worker.Case
}

// turn is the measurement of one case in one turn of a backend. The
// calibration loop for the comparison ends after it.
type turn struct {
	resultKey
	worker.Measurement
	tool string
	// slot numbers the turns of all backends.
	slot int
}

// engineTurn is the measurement of a workload in one turn.
type engineTurn struct {
	workloads.Measurement
	slot int
}
