package report

import (
	"fmt"
	"time"

	"github.com/felixlike/felixlike/felixlike/control"
	"github.com/felixlike/felixlike/felixlike/metrics"
)

// verify prints the newest proof of the programmed state.
func (t *text) verify(v control.Verify) {
	result := v.Result
	switch result {
	case "":
		result = "no proof has ended yet"
	case metrics.VerifyDiffers:
		result = t.style.Bad(result)
	}
	fmt.Fprintf(t, "verify: %s", result)
	if !v.At.IsZero() {
		fmt.Fprintf(t, ", %s ago (%s)", time.Since(v.At).Round(time.Second), v.Backend)
	}
	if v.Reason != "" {
		fmt.Fprintf(t, ": %s", v.Reason)
	}
	for _, c := range v.Classes {
		fmt.Fprintf(t, "\n  classes %s: %d of addresses, %d of protocols and ports, %d of interfaces", c.Family, c.Addresses, c.Ports, c.Interfaces)
	}
	if !v.At.IsZero() {
		fmt.Fprintf(t, "\n  %s; last proof took %s, CPU time %s, memory %d MiB", v.Mode,
			v.Took.Round(10*time.Millisecond), v.CPU.Round(10*time.Millisecond), v.Memory>>20)
	}
	if v.Abandoned > 0 {
		fmt.Fprintf(t, "   abandoned since: %d", v.Abandoned)
	}
	fmt.Fprintln(t)
}
