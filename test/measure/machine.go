package measure

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine describes the machine of a run. Facts that
// are not available are "unknown": the run is reported all the same.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory string `json:"memory"`
	Kernel string `json:"kernel"`
	System string `json:"system"`
	Go     string `json:"go"`
	// Revision is that of the source, with "modified" if it was.
	Revision string `json:"revision"`
	// Tools are the versions of the kernel's tools, by name.
	Tools map[string]string `json:"tools"`
	// LoadBefore and LoadAfter are load averages over 1, 5 and 15 minutes.
	LoadBefore string `json:"loadBefore"`
	LoadAfter  string `json:"loadAfter"`
}

const unknown = "unknown"

// ThisMachine returns the facts of this machine, with the versions that commands print.
func ThisMachine(ctx context.Context, tools ...[]string) Machine {
	m := Machine{
		CPU: field("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), Memory: field("/proc/meminfo", "MemTotal"),
		Kernel: kernel(), System: strings.Trim(field("/etc/os-release", "PRETTY_NAME"), `"`),
		Go: runtime.Version(), Revision: revision(ctx), Tools: map[string]string{}, LoadBefore: LoadAverage(),
	}
	for _, t := range tools {
		m.Tools[t[0]] = version(ctx, t)
	}
	return m
}

// field returns the value of the first line of a file that begins with the
// name, after ":" or "=".
func field(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return unknown
	}
	for line := range bytes.Lines(text) {
		if rest, ok := strings.CutPrefix(string(line), name); ok {
			return strings.TrimSpace(strings.TrimLeft(rest, " \t:="))
		}
	}
	return unknown
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return unknown
	}
	return unix.ByteSliceToString(u.Release[:]) + " " + unix.ByteSliceToString(u.Machine[:])
}

// revision is the one that the binary was built from, or, if it does not
// know, the one that is checked out where it lies.
func revision(ctx context.Context) string {
	value, modified := "", ""
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			value = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = ", modified"
		}
	}
	if value != "" {
		return value + modified
	}
	program, err := os.Executable()
	if err != nil {
		return unknown
	}
	return version(ctx, []string{"git", "-C", filepath.Dir(program), "describe", "--always", "--abbrev=12", "--dirty=, modified"})
}

func version(ctx context.Context, argv []string) string {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	if err != nil {
		return unknown
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(first)
}

func LoadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 3 {
		return unknown
	}
	return strings.Join(fields[:3], " ")
}

// Busy reports whether the machine was overloaded when the run began: its figures are
// then of little worth.
func (m Machine) Busy() bool {
	minute, _, _ := strings.Cut(m.LoadBefore, " ")
	load, err := strconv.ParseFloat(minute, 64)
	return err == nil && m.Cores > 0 && load > float64(m.Cores)
}

// Section describes the machine and the command of a run.
func (m Machine) Section(command string, started time.Time, took float64) Section {
	s := Section{
		Heading: "Machine and command", Left: 2, Header: []string{"fact", "value"},
		Rows: [][]string{
			{"CPU", m.CPU},
			{"cores", fmt.Sprint(m.Cores)},
			{"memory", m.Memory},
			{"kernel", m.Kernel},
			{"system", m.System},
			{"Go", m.Go},
		},
	}
	for _, name := range slices.Sorted(maps.Keys(m.Tools)) {
		s.Rows = append(s.Rows, []string{name, m.Tools[name]})
	}
	s.Rows = append(s.Rows,
		[]string{"revision", m.Revision},
		[]string{"load average before, after", m.LoadBefore + ", " + m.LoadAfter},
		[]string{"began, took", started.Format(time.RFC3339) + ", " + Duration(took)},
		[]string{"command", command})
	return s
}

// Warning says that the machine was busy when the run began; "" if it was not.
func (m Machine) Warning() string {
	if !m.Busy() {
		return ""
	}
	minute, _, _ := strings.Cut(m.LoadBefore, " ")
	return "busy machine, load " + minute + " on " + Grouped(int64(m.Cores)) + " cores: times and rates are of little worth"
}
