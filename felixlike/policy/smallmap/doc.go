// Package smallmap has a map and a set that need little memory while they are small.
//
// It is tested against Go's map with random operations.
package smallmap
