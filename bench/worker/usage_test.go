package worker

import (
	"os/exec"
	"testing"
)

func TestProgramsAreCounted(t *testing.T) {
	cpu, faults := cpuTime(), faultsOfChildren()
	for range 200_000 {
		cpuTime() // the loop is our own work
	}
	ours := cpuTime()
	if ours.Total() <= cpu.Total() || faultsOfChildren() != faults {
		t.Errorf("CPU time from %v to %v, faults of children from %d to %d", cpu, ours, faults, faultsOfChildren())
	}
	if err := exec.Command("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done").Run(); err != nil {
		t.Skip("no sh: ", err)
	}
	if grew := cpuTime().minus(ours).Total(); grew < 5e6 || faultsOfChildren() == faults {
		t.Errorf("a child has added %s of CPU time, and %d faults", grew, faultsOfChildren()-faults)
	}
}
