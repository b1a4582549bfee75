package worker

import (
	"time"

	"github.com/felixlike/felixlike/test/bench/workload"
	"github.com/felixlike/felixlike/test/workloads"
)

// Case is one thing that is measured.
type Case string

// The cases, in the order in which they are measured and reported.
const (
	// FirstLoad is from the complete model to the kernel's commit, in an
	// empty namespace.
	FirstLoad Case = "first-load"
	// ToolLoad is the same kernel state, saved and loaded by the kernel's own
	// tools.
	ToolLoad Case = "tool-load"
	// ManifestsRead is from a directory of files to the objects in memory. It
	// comes before everything else in the life of an agent with that datastore.
	ManifestsRead Case = "manifests-read"
	// Restart is from the complete model to programmed, by a new process,
	// where the kernel holds everything already.
	Restart Case = "restart"
	// Recheck is a full read of the kernel's state, compared with the desired
	// state.
	Recheck Case = "full-recheck"

	// RuleChanged changes one rule of one policy.
	RuleChanged Case = "rule-changed"
	// ElementAdded and ElementRemoved are a pod of another node that joins or
	// leaves one group.
	ElementAdded   Case = "element-added"
	ElementRemoved Case = "element-removed"
	// EndpointAdded and EndpointRemoved are a pod of this node with a list of
	// policies that no other pod has.
	EndpointAdded   Case = "endpoint-added"
	EndpointRemoved Case = "endpoint-removed"
	// PolicyAdded and PolicyRemoved are a policy that applies to as many pods
	// as the others.
	PolicyAdded   Case = "policy-added"
	PolicyRemoved Case = "policy-removed"

	// Another program makes the foreign changes. They end when the desired state
	// is in the kernel again: one rule or one chain's rules deleted, one
	// member of a group or one endpoint's dispatch deleted, everything deleted.
	ForeignRule     Case = "foreign-rule"
	ForeignChain    Case = "foreign-chain"
	ForeignElement  Case = "foreign-element"
	ForeignDispatch Case = "foreign-dispatch"
	ForeignAll      Case = "foreign-all"

	// Idle is time in which nothing happens.
	Idle Case = "idle"
)

// Task is what one process measures: a backend, or the policy engine, or the
// reading of objects.
type Task struct {
	Backend string           `json:"backend,omitempty"`
	Profile workload.Profile `json:"profile"`
	// Engine names a start-up workload of the policy engine, Placement where
	// its pods are.
	Engine    string              `json:"engine,omitempty"`
	Placement workloads.Placement `json:"placement,omitempty"`
	// Switch is the Open vSwitch in the namespace, for a backend that needs one.
	Switch Switch `json:"switch,omitzero"`
	// Manifests is a directory to read.
	Manifests string `json:"manifests,omitempty"`
	// Load requests FirstLoad; the kernel's state then stays. Otherwise it is
	// a Restart, followed by the cases of the other fields.
	Load bool `json:"load"`
	// Rules, Elements, Endpoints, Policies, Foreign and Rechecks are the numbers of
	// changes of each kind; additions are removed again. Everything
	// is deleted once, if Foreign is not zero.
	Rules     int `json:"rules"`
	Elements  int `json:"elements"`
	Endpoints int `json:"endpoints"`
	Policies  int `json:"policies"`
	Foreign   int `json:"foreign"`
	Rechecks  int `json:"rechecks"`
	// Idle is the length of the idle case; zero leaves it out.
	Idle time.Duration `json:"idleNanoseconds"`
}

// Measurement is one process's measurement of one case.
type Measurement struct {
	Case Case `json:"case"`
	// Wall has the time of each operation.
	Wall []time.Duration `json:"wallNanoseconds"`
	// Answered has the part of it until the receiver had everything, where the
	// stage waited longer.
	Answered []time.Duration `json:"answeredNanoseconds,omitempty"`
	// CPU is the CPU time of all operations together, of the process and of
	// those that it started. Writes are the mutating messages.
	CPU    CPU `json:"cpu"`
	Writes int `json:"writes"`
	// Saves and Restores count the programs that the backend started to read
	// and to write.
	Saves    int `json:"saves,omitempty"`
	Restores int `json:"restores,omitempty"`
	// Model is the part before, if it is reported separately: from the
	// objects to the model.
	Model Phase `json:"model,omitzero"`
	// Notified is the part of Wall before the agent was notified of a foreign change:
	// most of it is the time of the change itself.
	Notified time.Duration `json:"notifiedNanoseconds,omitempty"`
	// Rules and Elements are the kernel's numbers after it, Flows the
	// switch's.
	Flows    int `json:"flows,omitempty"`
	Rules    int `json:"rules,omitempty"`
	Elements int `json:"elements,omitempty"`
	// PeakRSS is the most memory that the process has had so far, in bytes;
	// SwitchPeakRSS that of ovs-vswitchd.
	PeakRSS       uint64 `json:"peakRSSBytes"`
	SwitchPeakRSS uint64 `json:"switchPeakRSSBytes,omitempty"`
}

// Phase is a part of a measurement.
type Phase struct {
	Wall time.Duration `json:"wallNanoseconds"`
	CPU  CPU           `json:"cpu"`
}

// Line is one line of a worker's output: the case (or the workload of the
// policy engine) that begins, or its measurement.
type Line struct {
	Begin    string       `json:"begin,omitempty"`
	Measured *Measurement `json:"measured,omitempty"`
	// Engine is the measurement of a workload of the policy engine.
	Engine *workloads.Measurement `json:"engine,omitempty"`
}
