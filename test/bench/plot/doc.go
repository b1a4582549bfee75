// Package plot draws the figures of reports as SVG: marks with whiskers in rows (Dots),
// and lines over a number (Lines). A figure is laid out for a width at which its text
// can be read on a telephone. It grows with its page and takes its colours from the
// page's scheme. Series differ in colour, shape and dashes: any one of them is
// enough.
//
//	Dots, Lines -> canvas -> inside a page | a file
//
// It measures no text. Labels are aligned by SVG (text-anchor), and room bounds their
// width by the number of characters. It knows no report. Tests check the drawing: each
// value in its place, nothing outside of the figure. Package page checks the figures of
// whole reports: no text covers another.
package plot
