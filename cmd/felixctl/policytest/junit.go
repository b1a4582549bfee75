package policytest

import (
	"encoding/xml"
	"fmt"
	"io"

	"github.com/felixlike/felixlike/internal/printable"
)

// The elements of JUnit's reports that CI systems read.
type (
	suites struct {
		XMLName  xml.Name `xml:"testsuites"`
		Tests    int      `xml:"tests,attr"`
		Failures int      `xml:"failures,attr"`
		Suites   []suite  `xml:"testsuite"`
	}
	suite struct {
		Name     string  `xml:"name,attr"`
		File     string  `xml:"file,attr"`
		Tests    int     `xml:"tests,attr"`
		Failures int     `xml:"failures,attr"`
		Cases    []tcase `xml:"testcase"`
	}
	tcase struct {
		Name    string   `xml:"name,attr"`
		Class   string   `xml:"classname,attr"`
		File    string   `xml:"file,attr"`
		Line    int      `xml:"line,attr"`
		Failure *failure `xml:"failure,omitempty"`
	}
	failure struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes a result as a report of JUnit.
func JUnit(w io.Writer, r *Result) error {
	var all suites
	all.Failures, all.Tests = count(r.Tests...)
	for _, t := range r.Tests {
		s := suite{Name: t.Name, File: t.File}
		s.Failures, s.Tests = count(t)
		for _, e := range t.Expectations {
			c := tcase{Name: printable.String(e.Text), Class: t.Name, File: t.File, Line: e.Line}
			if !e.Holds {
				c.Failure = &failure{Message: printable.String(e.Why())}
				for _, a := range e.Against {
					c.Failure.Text += printable.String(a.String()) + "\n"
				}
			}
			s.Cases = append(s.Cases, c)
		}
		all.Suites = append(all.Suites, s)
	}
	text, err := xml.MarshalIndent(all, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	}
	return err
}
