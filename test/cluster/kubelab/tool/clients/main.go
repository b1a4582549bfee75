// Command clients is the little of the programs curl, wget and dig that upstream's tests ask of their images. It is the program by whose
// name it is called, or else the one that its first argument names.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	programs := map[string]func([]string) int{"curl": curl, "dig": dig, "wget": wget}
	name, args := filepath.Base(os.Args[0]), os.Args[1:]
	if programs[name] == nil && len(args) > 0 {
		name, args = args[0], args[1:]
	}
	program := programs[name]
	if program == nil {
		fmt.Fprintln(os.Stderr, "clients: no program", name)
		os.Exit(2)
	}
	os.Exit(program(args))
}

// fail prints an error and returns an exit status.
func fail(program string, status int, err error) int {
	fmt.Fprintf(os.Stderr, "%s: (%d) %v\n", program, status, err)
	return status
}
