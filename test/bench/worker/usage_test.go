package worker

import (
	"os/exec"
	"testing"
)

func TestProgramsAreCounted(t *testing.T) {
	cpu, faults := (Switch{}).cpuTime(), faultsOfChildren()
	for range 200_000 {
		(Switch{}).cpuTime() // the loop is our own work
	}
	ours := (Switch{}).cpuTime()
	if ours.Total() <= cpu.Total() || ours.Started != cpu.Started || faultsOfChildren() != faults {
		t.Errorf("CPU time from %v to %v, faults of children from %d to %d", cpu, ours, faults, faultsOfChildren())
	}
	if err := exec.Command("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done").Run(); err != nil {
		t.Skip("no sh: ", err)
	}
	grew := (Switch{}).cpuTime().Minus(ours)
	if grew.Started < 5e6 || grew.Total() < grew.Started || faultsOfChildren() == faults {
		t.Errorf("a child has added %+v of CPU time, and %d faults", grew, faultsOfChildren()-faults)
	}
}
