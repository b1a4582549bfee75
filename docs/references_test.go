package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestReferencesToCode: the design pages name code as `dir/file.go:Name`, `dir/file.go` or `dir/dir`. The file is there and declares
// the name: a function, a type, a constant, a variable, or, after the name of its type and a dot, a method or a field.
func TestReferencesToCode(t *testing.T) {
	var all references
	count := 0
	for page, text := range developerPages(t) {
		for _, m := range regexp.MustCompile("`(\\w+/[\\w./-]+)(?::([\\w.]+))?`").FindAllStringSubmatch(text, -1) {
			file, name := m[1], m[2]
			if count++; name == "" {
				if _, err := os.Stat(filepath.Join("..", file)); err != nil {
					t.Errorf("%s: %v", page, err)
				}
			} else if names, err := all.of(file); err != nil {
				t.Errorf("%s: %s: %v", page, file, err)
			} else if !names[name] {
				t.Errorf("%s: %s does not declare %s", page, file, name)
			}
		}
	}
	if count < 100 {
		t.Errorf("only %d references to code", count)
	}
}

// developerPages returns the texts of the design pages, by path.
func developerPages(t *testing.T) map[string]string {
	t.Helper()
	pages, err := filepath.Glob("design/*.md")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		texts[page] = string(text)
	}
	return texts
}

// references has the declared names of each file that a page refers to.
type references map[string]map[string]bool

// of returns the names that a file of this repository declares.
func (r *references) of(file string) (map[string]bool, error) {
	if names, known := (*r)[file]; known {
		return names, nil
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", filepath.FromSlash(file)), nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names[receiver(d)+d.Name.Name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
					addFields(names, s)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names[n.Name] = true
					}
				}
			}
		}
	}
	if *r == nil {
		*r = references{}
	}
	(*r)[file] = names
	return names, nil
}

// receiver returns the name of a method's type and a dot, or nothing.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	for {
		switch e := of.(type) {
		case *ast.StarExpr:
			of = e.X
		case *ast.IndexExpr:
			of = e.X
		case *ast.Ident:
			return e.Name + "."
		default:
			return ""
		}
	}
}

// addFields adds the fields of a struct and the methods of an interface.
func addFields(names map[string]bool, s *ast.TypeSpec) {
	var fields *ast.FieldList
	switch of := s.Type.(type) {
	case *ast.StructType:
		fields = of.Fields
	case *ast.InterfaceType:
		fields = of.Methods
	default:
		return
	}
	for _, f := range fields.List {
		for _, n := range f.Names {
			names[s.Name.Name+"."+n.Name] = true
		}
	}
}
