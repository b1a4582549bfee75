package change

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/felixlike/felixlike/felixlike/tenancy"
)

// Annotation is the annotation of a NetNamespace by which `oc adm pod-network` asks for a change: "join:NAMESPACE", "isolate"
// or "global". oc waits until it is removed.
const Annotation = "pod.network.openshift.io/multitenant.change-network"

// errNotAsked says that nobody asks any more for the change that Do makes.
var errNotAsked = errors.New("the annotation has changed")

// Do does what the annotation of a NetNamespace asks for, and removes it. If the annotation has changed meanwhile, it does nothing.
// It writes no other NetNamespace: a namespace that others join by an annotation must have one.
func (c Changer) Do(ctx context.Context, namespace, asked string) (Change, error) {
	c.asked = asked
	done, err := c.do(ctx, namespace)
	if errors.Is(err, errNotAsked) {
		return done, nil
	}
	return done, err
}

func (c Changer) do(ctx context.Context, namespace string) (Change, error) {
	// OpenShift ends "isolate" and "global" with a colon, too.
	action, to, _ := strings.Cut(c.asked, ":")
	switch {
	case action == "join" && to != "":
		o, err := c.read(ctx, to)
		if err == nil && (o == nil || tenancy.NumberOf(o) == nil) {
			err = fmt.Errorf("namespace %s has no NetNamespace with a number: use felixctl netnamespace join, which creates it", to)
		}
		if err != nil {
			return Change{}, err
		}
		return c.Join(ctx, namespace, to)
	case action == "isolate":
		return c.Isolate(ctx, namespace)
	case action == "global":
		return c.Global(ctx, namespace)
	}
	return Change{}, fmt.Errorf("%q is no change: want join:NAMESPACE, isolate or global", c.asked)
}
