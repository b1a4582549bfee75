package stopwatch

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// stoppedEnv has this test's binary be the process that is stopped.
const stoppedEnv = "FELIXLIKE_STOPWATCH_TEST_STOPPED"

const stopped = 500 * time.Millisecond

// TestStoppedTimeIsLost stops a process that times itself: its stopwatch leaves out the time
// for which it could not run.
func TestStoppedTimeIsLost(t *testing.T) {
	if os.Getenv(stoppedEnv) != "" {
		w := Start(t)
		fmt.Println("started")
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil { // until the other process closes it
			t.Fatal(err)
		}
		lap := w.Lap(t)
		fmt.Println(int64(lap.Took), int64(lap.Lost))
		return
	}
	c := exec.Command("/proc/self/exe", "-test.run", "^"+t.Name()+"$")
	c.Env = append(os.Environ(), stoppedEnv+"=1")
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "started" {
		t.Fatalf("%q, %v", lines.Text(), lines.Err())
	}
	if err := c.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// It stops some time after the signal.
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(c.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("stop: status %#x, %v", status, err)
	}
	time.Sleep(stopped)
	if err := c.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	var took, lost time.Duration
	if !lines.Scan() {
		t.Fatal(lines.Err())
	}
	if _, err := fmt.Sscan(lines.Text(), &took, &lost); err != nil {
		t.Fatalf("%q: %v", lines.Text(), err)
	}
	for lines.Scan() { // the end of the test
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if lost < stopped-tick || lost > took {
		t.Errorf("stopped for %s: lost %s of %s", stopped, lost, took)
	}
}

func TestNet(t *testing.T) {
	if net := (Lap{Took: 300 * time.Millisecond, Lost: 100 * time.Millisecond}).Net(); net != 200*time.Millisecond {
		t.Errorf("net %s", net)
	}
	w := Start(t)
	time.Sleep(20 * time.Millisecond)
	if l := w.Lap(t); l.Took < 20*time.Millisecond || l.Lost < 0 || l.Net() < 0 {
		t.Errorf("%s", l)
	}
}

func TestParse(t *testing.T) {
	if got, err := parseWaited("some avg10=64.05 avg60=50.69 avg300=44.99 total=19515275507\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"); err != nil || got != 19515275507*time.Microsecond {
		t.Errorf("waited %s, %v", got, err)
	}
	if got, err := parseStolen("cpu  3617424 54188 1222107 3352386 13377 0 57903 153099 0 0\ncpu0 1 2\n"); err != nil || got != 1530990*time.Millisecond {
		t.Errorf("stolen %s, %v", got, err)
	}
	for _, text := range []string{"", "some", "some total=x", "full"} {
		if _, err := parseWaited(text); err == nil {
			t.Errorf("waited from %q: no error", text)
		}
		if _, err := parseStolen(text); err == nil {
			t.Errorf("stolen from %q: no error", text)
		}
	}
}
