// Package measure has the parts of measurement reports: series with one value a round,
// latencies, the use of CPU by machine and processes, and tables as text and Markdown.
//
// It does not know the measured things. Table-driven tests and the golden reports of
// test/bench test it.
package measure
