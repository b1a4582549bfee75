// Package page makes a page of a report of package bench: figures
// (Figures), a table that compares the backends (Summary), and one HTML page
// with both, all tables and the facts of the machine (Write). The page needs nothing else:
// no network, no script, no font. It leaves out the parts that a report does not have. It
// measures nothing, and its only judgement is the report's own spread.
//
// Tests use the reports in docs/results/benchmarks: the figures draw the report's values, and the
// tables equal those of Markdown. A browser, if installed, checks the layout:
// nothing is cut off, no text covers another, at the width of a telephone and of a
// desk.
package page
