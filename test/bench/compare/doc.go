// Package compare says what has changed between two reports of package bench
// beyond noise: Compare pairs their metrics, and judges each pair by the spread of
// its rounds (judge). It corrects for the machine by the calibration loop, refuses
// parts that measured different things, and warns of what else differs. It measures
// nothing. It is tested with rounds whose difference is known: noise alone, and
// noise with a change in it.
package compare
