// Package compare finds the changes between two reports of package bench
// beyond noise: Compare pairs their metrics, and judges each pair by the spread of
// its rounds (judge). It corrects for the machine by the calibration loop, refuses
// parts that measured different things, and warns of other differences. It measures
// nothing. Tests use rounds with a known difference: noise alone, and
// noise with a change in it.
package compare
