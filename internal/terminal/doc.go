// Package terminal is how commands print: aligned tables, colour on terminals,
// signs of life of what takes long, and values as text, JSON or YAML. It knows
// nothing of what is printed. It is tested by its text.
package terminal
