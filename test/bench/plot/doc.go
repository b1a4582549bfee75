// Package plot draws the figures of reports: marks with whiskers in rows (Dots),
// and lines over a number (Lines). A figure is laid out once, on a canvas, for a
// width at which its text can be read on a telephone. As SVG it grows with its
// page and takes its colours from the page's scheme. As PNG it is the SVG
// in light colours. Series differ in colour, shape and dashes: any one of them is
// enough.
//
//	Dots, Lines -> canvas -> svg | png
//
// It knows no report. Tests check the drawing: each value in its place,
// nothing outside of the figure, and in a browser by package page.
package plot
