package worker

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/measure"
)

// measuring is a task that is being done.
type measuring struct {
	task     Task
	workload workload.Workload
	out      *json.Encoder
	agent    *agent
}

// measure measures do, and has it report the rest. It checks a backend's claim that it
// started no program.
func (m *measuring) measure(c Case, do func(*Measurement) error) error {
	if err := m.out.Encode(Line{Begin: string(c)}); err != nil {
		return err
	}
	out := &Measurement{Case: c}
	before, faults := m.task.Switch.cpuTime(), faultsOfChildren()
	if err := do(out); err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	out.CPU = m.task.Switch.cpuTime().Minus(before)
	if out.Saves+out.Restores == 0 && faultsOfChildren() != faults {
		return fmt.Errorf("%s: a program was started, and the backend reports none", c)
	}
	return m.report(out)
}

func (m *measuring) report(out *Measurement) error {
	own, err := measure.ProcessUsageOf(os.Getpid())
	if err != nil {
		return err
	}
	out.PeakRSS = own.Peak
	if pid := m.task.Switch.PID; pid != 0 {
		vswitchd, err := measure.ProcessUsageOf(pid)
		if err != nil {
			return err
		}
		out.SwitchPeakRSS = vswitchd.Peak
	}
	return m.out.Encode(Line{Measured: out})
}
