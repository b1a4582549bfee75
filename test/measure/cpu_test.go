package measure

import (
	"testing"
	"time"
)

func TestIdleTimeIsReadOfEveryProcessor(t *testing.T) {
	text := "cpu  100 0 100 5000 10 0 0 20 0 0\ncpu0 50 0 50 2500 5 0 0 10 0 0\ncpu1 50 0 50 2500 5 0 0 10 0 0\nintr 1 2 3\n"
	u, err := parseStat(text)
	if err != nil || u.CPUs != 2 || u.idle != 50300*time.Millisecond {
		t.Fatalf("%+v, error %v", u, err)
	}
	then := u
	u.At, u.idle = then.At.Add(time.Second), then.idle+500*time.Millisecond
	if worked := u.Worked(then, 0); worked != 1500*time.Millisecond {
		t.Errorf("CPU %s of two processors that were idle for half a second of one", worked)
	}
	// Stolen and idle time overlap: together they are more than the two processors' second.
	u.idle = then.idle + 2100*time.Millisecond
	if worked := u.Worked(then, 160*time.Millisecond); worked != 160*time.Millisecond {
		t.Errorf("CPU %s where the processes alone had 160ms", worked)
	}
	if _, err := parseStat("intr 1 2 3\n"); err == nil {
		t.Error("no processor, no error")
	}
}
