package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// document is one document of a file as JSON.
type document struct {
	// line is where it begins in its file, counted from 1.
	line int
	json []byte
	// err is the reason why there is no JSON, or why only the identity of the object can be read from it.
	err error
}

// part is the text of one YAML document.
type part struct {
	line int
	text []byte
}

// documents splits a file. Documents without content are left out.
func documents(name string, data []byte) []document {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if filepath.Ext(name) == ".json" {
		return jsonDocuments(data)
	}
	var docs []document
	for _, p := range splitYAML(data) {
		d := yamlDocument(p)
		if d.err != nil || !bytes.Equal(d.json, []byte("null")) {
			docs = append(docs, d)
		}
	}
	return docs
}

// splitYAML splits a stream at its markers: lines that begin with "---", or
// are "...". The lines of all parts are those of the file.
func splitYAML(data []byte) []part {
	var parts []part
	current := part{line: 1}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		text := bytes.TrimRight(line, "\r\n")
		starts := isMarker(text, "---")
		if starts || isMarker(text, "...") {
			parts = append(parts, current)
			current = part{line: number}
			if starts {
				// Text behind the marker belongs to the document: "--- {a: b}".
				current.text = append(current.text, line[len("---"):]...)
				continue
			}
			line = []byte("\n")
		}
		current.text = append(current.text, line...)
	}
	return append(parts, current)
}

func isMarker(line []byte, marker string) bool {
	rest, found := bytes.CutPrefix(line, []byte(marker))
	return found && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t')
}

// yamlDocument converts YAML to JSON. A key that is given twice makes the
// document wrong, but it is read for the object's name.
func yamlDocument(p part) document {
	strict, err := yaml.YAMLToJSONStrict(p.text)
	if err == nil {
		return document{line: p.line, json: strict}
	}
	loose, looseErr := yaml.YAMLToJSON(p.text)
	if looseErr != nil {
		return document{line: p.line, err: atLine(looseErr, p.line)}
	}
	return document{line: p.line, json: loose, err: atLine(err, p.line)}
}

// atLine turns the lines of a YAML error, which count from the document's
// first, into the file's. The library gives them as text only.
func atLine(err error, first int) error {
	pattern := regexp.MustCompile(`line (\d+):`)
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.Join(strings.Fields(strings.TrimPrefix(text, "unmarshal errors:")), " ")
	text = pattern.ReplaceAllStringFunc(text, func(found string) string {
		line, convErr := strconv.Atoi(pattern.FindStringSubmatch(found)[1])
		if convErr != nil {
			return found
		}
		return fmt.Sprintf("line %d:", line+first-1)
	})
	return errors.New(text)
}

// jsonDocuments splits a stream of JSON values.
func jsonDocuments(data []byte) []document {
	var docs []document
	decoder := json.NewDecoder(bytes.NewReader(data))
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return docs
		}
		if err != nil {
			offset := decoder.InputOffset()
			if is, at := kjson.SyntaxErrorOffset(err); is {
				offset = at
			}
			line := lineAt(data, offset)
			return append(docs, document{line: line, err: fmt.Errorf("line %d: %w", line, err)})
		}
		if !bytes.Equal(raw, []byte("null")) {
			docs = append(docs, document{line: lineAt(data, decoder.InputOffset()-int64(len(raw))), json: raw})
		}
	}
}

func lineAt(data []byte, offset int64) int {
	offset = min(max(offset, 0), int64(len(data)))
	return 1 + bytes.Count(data[:offset], []byte("\n"))
}
