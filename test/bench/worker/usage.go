package worker

import (
	"time"

	"golang.org/x/sys/unix"
)

// CPU is CPU time: User that of programs, System that of the kernel on their
// behalf. Started is the part of both that programs which were started have had,
// Switch the part that ovs-vswitchd has had.
type CPU struct {
	User    time.Duration `json:"userNanoseconds"`
	System  time.Duration `json:"systemNanoseconds"`
	Started time.Duration `json:"startedNanoseconds,omitempty"`
	Switch  time.Duration `json:"switchNanoseconds,omitempty"`
}

// Total returns the sum of both.
func (c CPU) Total() time.Duration { return c.User + c.System }

// Add returns the sum of two.
func (c CPU) Add(o CPU) CPU {
	return CPU{c.User + o.User, c.System + o.System, c.Started + o.Started, c.Switch + o.Switch}
}

// Minus returns the difference of two.
func (c CPU) Minus(o CPU) CPU {
	return CPU{c.User - o.User, c.System - o.System, c.Started - o.Started, c.Switch - o.Switch}
}

// cpuTime returns the CPU time of this process, of the processes that it started
// and waited for, and of the switch. A switch that does not answer has ended; the
// measurement then fails soon.
func (s Switch) cpuTime() CPU {
	started := usage(unix.RUSAGE_CHILDREN)
	started.Started = started.Total()
	inSwitch, _ := s.CPU()
	return usage(unix.RUSAGE_SELF).Add(started).Add(inSwitch)
}

func usage(who int) CPU {
	var u unix.Rusage
	// It fails for a bad pointer or an unknown who only.
	_ = unix.Getrusage(who, &u)
	return CPU{User: time.Duration(u.Utime.Nano()), System: time.Duration(u.Stime.Nano())}
}

// faultsOfChildren counts the page faults of all processes that this one
// started and waited for. Every process has some, so an equal figure means that
// none was started.
func faultsOfChildren() int64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &u) // as in usage
	return u.Minflt + u.Majflt
}
