// Package plot draws the figures of reports: marks with whiskers in rows (Dots),
// and lines over a number (Lines). A figure is laid out once, on a canvas, for a
// width at which its text can be read on a telephone; as SVG it grows with its
// page and takes its colours from the page's scheme, and as PNG it is what the SVG
// is in light colours. Series differ in colour, shape and dashes, so none of the
// three has to be seen.
//
//	Dots, Lines -> canvas -> svg | png
//
// It knows no report. It is tested by what it draws: each value in its place,
// nothing outside of the figure, and in a browser by package page.
package plot
