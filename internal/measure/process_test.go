package measure

import (
	"os"
	"testing"
)

func TestUsageOfProcess(t *testing.T) {
	u, err := ProcessUsageOf(os.Getpid())
	if err != nil || u.RSS < 1e6 || u.Peak < u.RSS {
		t.Errorf("%+v, error %v", u, err)
	}
	if _, err := ProcessUsageOf(1 << 30); err == nil {
		t.Error("a process that there is not uses something")
	}
}
