package compile

import (
	"fmt"

	"github.com/felixlike/felixlike/model"
)

// Report collects the problems of one object.
type Report struct {
	Object   model.ObjectRef
	Problems []model.Problem
}

// Add adds a problem of a field.
func (r *Report) Add(field, format string, args ...any) {
	r.Problems = append(r.Problems, model.Problem{Object: r.Object, Field: field, Reason: fmt.Sprintf(format, args...)})
}
