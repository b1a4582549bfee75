// Package servicelist reads the Services that a command is given. felixlike reads them from the API server with serviceProxy: full only. It is tested by
// felixctl trace and preview.
package servicelist

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/felixlike/felixlike/internal/files"
)

// maxSize bounds the size of the listing of Services: it has room for some ten thousand.
const maxSize = 64 << 20

// Read reads Services from a file, or from standard input ("-"): YAML or JSON,
// one or many, as `kubectl get services -A -o yaml` prints them. It leaves out other
// objects. Without a path there are none.
func Read(path string, stdin io.Reader) ([]*corev1.Service, error) {
	if path == "" {
		return nil, nil
	}
	in := stdin
	if path != "-" {
		file, err := files.Open(path, maxSize)
		if err != nil {
			return nil, fmt.Errorf("--services: %w", err)
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(files.Bounded(in, maxSize))
	if err != nil {
		return nil, fmt.Errorf("--services %s: %w", path, err)
	}
	var all []*corev1.Service
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err == nil {
			all, err = appendTo(all, document)
		}
		if err != nil {
			return nil, fmt.Errorf("--services %s: %w", path, err)
		}
	}
}

func appendTo(all []*corev1.Service, document []byte) ([]*corev1.Service, error) {
	if len(bytes.TrimSpace(document)) == 0 {
		return all, nil
	}
	var head struct {
		Kind  string            `json:"kind"`
		Items []*corev1.Service `json:"items"`
	}
	if err := yaml.Unmarshal(document, &head); err != nil {
		return nil, err
	}
	switch head.Kind {
	case "Service":
		s := &corev1.Service{}
		if err := yaml.Unmarshal(document, s); err != nil {
			return nil, err
		}
		all = append(all, s)
	case "List", "ServiceList":
		for _, s := range head.Items {
			if s.Kind == "Service" || s.Kind == "" {
				all = append(all, s)
			}
		}
	}
	return all, nil
}
