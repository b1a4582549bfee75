package workloads

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// childVariable marks a child process of Run.
const childVariable = "FELIXLIKE_MEASURE_WORKLOAD"

// Run measures a workload, in the size that All gives it, in a fresh process:
// a child of this program, whose main (or TestMain) must call Child first.
func Run(ctx context.Context, w Workload, p Placement) (Measurement, error) {
	var m Measurement
	self, err := os.Executable()
	if err != nil {
		return m, fmt.Errorf("measure %s: %w", w.Name, err)
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s/%s", childVariable, w.Name, p))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return m, fmt.Errorf("measure %s in a child: %w: %s", w.Name, err, bytes.TrimSpace(stderr.Bytes()))
	}
	if err := json.Unmarshal(out, &m); err != nil {
		return m, fmt.Errorf("measure %s in a child: %w", w.Name, err)
	}
	return m, nil
}

// Child does the work if this process was made by Run: it measures and writes
// the result to out. The program ends after that.
func Child(out io.Writer) (isChild bool, err error) {
	name, placement, isChild := strings.Cut(os.Getenv(childVariable), "/")
	if !isChild {
		return false, nil
	}
	w, err := Named(name)
	if err != nil {
		return true, err
	}
	m, err := Measure(w, Placement(placement))
	if err != nil {
		return true, err
	}
	return true, json.NewEncoder(out).Encode(m)
}
