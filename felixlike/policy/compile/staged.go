package compile

import "github.com/felixlike/felixlike/model"

// staged reports whether the annotations say that a policy is not enforced. With a value that it does not know the policy is enforced.
func (c *compiler) staged(annotations map[string]string) bool {
	switch value, found := annotations[model.EnforceAnnotation]; {
	case !found || value == "yes":
	case value == "no":
		return true
	default:
		c.Add(annotationField(model.EnforceAnnotation), "unknown value %q: must be yes or no; the policy is enforced", shown(value))
	}
	return false
}

// Staged reports whether the annotations of a policy say that it is not enforced.
func Staged(annotations map[string]string) bool { return annotations[model.EnforceAnnotation] == "no" }
