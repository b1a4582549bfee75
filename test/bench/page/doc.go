// Package page makes of a report of package bench what people look at: figures
// (Figures), sentences that say who costs what (summary), and one HTML page with
// both, all tables and the facts of the machine (Write). The page needs nothing but
// itself: no network, no script, no font. Whatever a report does not have is left
// out. It measures nothing and judges nothing that the report's own spread does
// not tell.
//
// It is tested with the reports in docs/benchmarks: what is drawn is in the report,
// what a table says is what Markdown says; and in a browser, where there is one:
// nothing is cut off, no text covers another, at the width of a telephone and of a
// desk.
package page
