package measure

import (
	"os"
	"testing"
)

func TestUsageOfProcess(t *testing.T) {
	u, err := ProcessUsageOf(os.Getpid())
	// The kernel counts the pages per processor, so the peak may be a little low.
	if err != nil || u.RSS < 1e6 || u.Peak < u.RSS-u.RSS/10 {
		t.Errorf("%+v, error %v", u, err)
	}
	if _, err := ProcessUsageOf(1 << 30); err == nil {
		t.Error("a process that there is not uses something")
	}
}
