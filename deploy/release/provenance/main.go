// Command provenance writes how the files of a release were made: an in-toto statement (in-toto.io/Statement/v1) with
// the predicate of SLSA (slsa.dev/provenance/v1). It names no time and no machine, so two builds write the same. It is
// tested by TestRelease of deploy.
//
//	provenance -version VERSION -image IMAGE -digest DIGEST -arches ARCHES -source URI -commit COMMIT -epoch SECONDS <SHA256SUMS
//
// The signature is not its work: the release workflow signs the same files.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "provenance:", err)
		os.Exit(2)
	}
}

// resource is a ResourceDescriptor of in-toto.
type resource struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest,omitempty"`
}

type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     struct {
		BuildDefinition struct {
			BuildType            string            `json:"buildType"`
			ExternalParameters   map[string]string `json:"externalParameters"`
			ResolvedDependencies []resource        `json:"resolvedDependencies"`
		} `json:"buildDefinition"`
		RunDetails struct {
			Builder struct {
				ID string `json:"id"`
			} `json:"builder"`
		} `json:"runDetails"`
	} `json:"predicate"`
}

func run(args []string, sums io.Reader, out io.Writer) error {
	flags := flag.NewFlagSet("provenance", flag.ContinueOnError)
	version, image, digest := flags.String("version", "", ""), flags.String("image", "", ""), flags.String("digest", "", "")
	arches, source, commit, epoch := flags.String("arches", "", ""), flags.String("source", "", ""), flags.String("commit", "", ""), flags.String("epoch", "", "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	s.Subject = []resource{{Name: *image + ":" + *version, Digest: map[string]string{"sha256": strings.TrimPrefix(*digest, "sha256:")}}}
	lines := bufio.NewScanner(sums)
	for lines.Scan() {
		sum, name, found := strings.Cut(lines.Text(), "  ")
		if !found {
			return fmt.Errorf("%q is no line of sha256sum", lines.Text())
		}
		s.Subject = append(s.Subject, resource{Name: name, Digest: map[string]string{"sha256": sum}})
	}
	if err := lines.Err(); err != nil {
		return err
	}
	build := &s.Predicate.BuildDefinition
	s.Predicate.RunDetails.Builder.ID = *source + "/blob/" + *commit + "/deploy/release/build"
	build.BuildType = s.Predicate.RunDetails.Builder.ID
	build.ExternalParameters = map[string]string{"VERSION": *version, "IMAGE": *image, "ARCHES": *arches, "SOURCE_DATE_EPOCH": *epoch}
	build.ResolvedDependencies = []resource{
		{URI: "git+" + *source + "@" + *commit, Digest: map[string]string{"gitCommit": *commit}},
		{URI: "pkg:golang/std@" + strings.TrimPrefix(runtime.Version(), "go")},
	}
	text := json.NewEncoder(out)
	text.SetIndent("", "  ")
	return text.Encode(s)
}
