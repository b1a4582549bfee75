// Command sbom writes a software bill of materials in the format CycloneDX: of Go programs
// and of Debian packages. The Go toolchain records in each program the modules that it was
// linked from. It is tested by TestRelease of deploy.
//
//	sbom -name NAME -version VERSION [-debian ARCH=FILE]... PROGRAM...
//
// FILE has a package and its version in each line, as /usr/share/felixlike/packages in the
// image.
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(2)
	}
}

// component is one of CycloneDX 1.6. The SBOM needs few keys; the requirements of a
// library would become requirements of the agent.
type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl,omitempty"`
}

type bom struct {
	Format      string `json:"bomFormat"`
	SpecVersion string `json:"specVersion"`
	Version     int    `json:"version"`
	Metadata    struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

// components are those found so far, by package URL.
type components map[string]component

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	name := flags.String("name", "felixlike", "name of the product")
	version := flags.String("version", "", "version of the product")
	found := components{}
	flags.Func("debian", "ARCH=FILE: Debian packages", func(value string) error {
		arch, path, ok := strings.Cut(value, "=")
		if !ok {
			return fmt.Errorf("%q is not ARCH=FILE", value)
		}
		return found.addDebian(arch, path)
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, path := range flags.Args() {
		if err := found.addProgram(path); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	b := bom{Format: "CycloneDX", SpecVersion: "1.6", Version: 1}
	b.Metadata.Component = component{Type: "application", Ref: *name, Name: *name, Version: *version}
	for _, purl := range slices.Sorted(maps.Keys(found)) {
		b.Components = append(b.Components, found[purl])
	}
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(b)
}

func (c components) add(name, version, purl string) {
	c[purl] = component{Type: "library", Ref: purl, Name: name, Version: version, PURL: purl}
}

// addProgram adds the toolchain and the modules of a program, but for its own.
func (c components) addProgram(path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	c.add("std", info.GoVersion, "pkg:golang/std@"+strings.TrimPrefix(info.GoVersion, "go"))
	modules := info.Deps
	if info.Main.Path != "github.com/felixlike/felixlike" {
		modules = append(modules, &info.Main)
	}
	for _, m := range modules {
		if m.Replace != nil {
			m = m.Replace
		}
		c.add(m.Path, m.Version, "pkg:golang/"+m.Path+"@"+m.Version)
	}
	return nil
}

func (c components) addDebian(arch, path string) error {
	text, err := os.ReadFile(filepath.Clean(path))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		name, version, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			return fmt.Errorf("%s: line %q is not a package and its version", path, strings.TrimSpace(line))
		}
		// "+" and ":" of a version are escaped in a package URL.
		escaped := strings.NewReplacer("+", "%2B", ":", "%3A").Replace(version)
		c.add(name, version, "pkg:deb/debian/"+name+"@"+escaped+"?arch="+arch)
	}
	return nil
}
