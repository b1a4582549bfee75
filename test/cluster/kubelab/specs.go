package kubelab

import (
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Spec is one upstream end-to-end test that ran.
type Spec struct {
	Name    string
	Took    time.Duration
	Failure string
}

// RunSpecs runs the upstream specs with names that match focus but not skip, some at
// a time, and returns those that ran by name. The log is the file that SpecLog names.
func (c *Cluster) RunSpecs(ctx context.Context, focus, skip string, parallel int) ([]Spec, error) {
	report := filepath.Join(c.kit.work, "e2e-report", "junit.xml")
	if err := os.RemoveAll(report); err != nil {
		return nil, err
	}
	environ := append(c.config.environ(), "PROCS="+strconv.Itoa(parallel))
	_, runErr := c.kit.script(ctx, environ, "e2e.sh", focus, skip)
	text, err := os.ReadFile(report)
	if err != nil {
		return nil, fmt.Errorf("no report of the specs: %w (%w)", err, runErr)
	}
	specs, err := parseReport(text)
	if err == nil && runErr != nil && !slices.ContainsFunc(specs, func(s Spec) bool { return s.Failure != "" }) {
		// The failure is not that of a spec.
		err = runErr
	}
	return specs, err
}

// SpecLog returns the path of the log of the last specs.
func (c *Cluster) SpecLog() string { return filepath.Join(c.kit.work, "e2e-report", "log") }

// parseReport reads a JUnit report as ginkgo writes it.
func parseReport(text []byte) ([]Spec, error) {
	var report struct {
		Suites []struct {
			Cases []struct {
				Name    string  `xml:"name,attr"`
				Status  string  `xml:"status,attr"`
				Seconds float64 `xml:"time,attr"`
				Failure *struct {
					Message string `xml:"message,attr"`
					Text    string `xml:",chardata"`
				} `xml:"failure"`
				Error *struct {
					Message string `xml:"message,attr"`
				} `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("read the report of the specs: %w", err)
	}
	var specs []Spec
	for _, suite := range report.Suites {
		for _, c := range suite.Cases {
			name, isSpec := strings.CutPrefix(c.Name, "[It] ")
			if !isSpec && c.Failure == nil && c.Error == nil || c.Status == "skipped" || c.Status == "pending" {
				continue
			}
			s := Spec{Name: name, Took: time.Duration(c.Seconds * float64(time.Second))}
			switch {
			case c.Failure != nil:
				s.Failure = c.Failure.Message + "\n" + c.Failure.Text
			case c.Error != nil:
				s.Failure = c.Error.Message
			}
			specs = append(specs, s)
		}
	}
	slices.SortFunc(specs, func(a, b Spec) int { return strings.Compare(a.Name, b.Name) })
	return specs, nil
}
