// Package terminal prints for commands: aligned tables, colour on terminals, the
// progress of long work, and values as text, JSON or YAML. It does not know the
// meaning of the values. It is tested by its text.
package terminal
