// Command tool makes what a cluster needs beside programs: certificates with kubeconfigs, and image archives
// (OCI image layout) of static programs.
package main

import (
	"errors"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		fatal(errors.New("name what to make: pki or image"))
	}
	var err error
	switch os.Args[1] {
	case "pki":
		err = pki(os.Args[2:])
	case "image":
		err = image(os.Args[2:])
	default:
		err = fmt.Errorf("unknown verb %q", os.Args[1])
	}
	if err != nil {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "tool:", err)
	os.Exit(1)
}
