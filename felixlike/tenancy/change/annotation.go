package change

import (
	"context"
	"fmt"
	"strings"
)

// Annotation is the annotation of a NetNamespace by which `oc adm pod-network` asks for a change: "join:NAMESPACE", "isolate"
// or "global". oc waits until it is removed.
const Annotation = "pod.network.openshift.io/multitenant.change-network"

// Do does what the annotation of a namespace asks for, and removes it. It does nothing if the annotation is another one
// meanwhile.
func (c Changer) Do(ctx context.Context, namespace, asked string) (Change, error) {
	c.asked = asked
	action, argument, _ := strings.Cut(asked, ":")
	switch {
	case action == "join" && argument != "":
		return c.Join(ctx, namespace, argument)
	case action == "isolate":
		return c.Isolate(ctx, namespace)
	case action == "global":
		return c.Global(ctx, namespace)
	}
	return Change{}, fmt.Errorf("%q is no change: want join:NAMESPACE, isolate or global", asked)
}
