// Package measure is what reports on measurements are made of: series of rounds and
// latencies, what machine and processes have used, and tables as text and Markdown.
//
// It knows nothing of what is measured. It is tested by tables, and by the golden
// reports of test/bench.
package measure
