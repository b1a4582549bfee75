package netnamespace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/felixlike/felixlike/cmd/felixctl/preview"
	"github.com/felixlike/felixlike/felixlike/antrea"
	"github.com/felixlike/felixlike/felixlike/tenancy"
	"github.com/felixlike/felixlike/felixlike/tenancy/change"
	"github.com/felixlike/felixlike/internal/printable"
)

var errNoAnswer = errors.New("not all agents gave an answer")

// denied prints the established connections that a change denies, and reports whether all agents gave an answer.
func denied(ctx context.Context, a Access, out, notes io.Writer, manifest []byte, deleted []string) (bool, error) {
	if len(manifest)+len(deleted) == 0 {
		return true, nil
	}
	command := []string{"preview", "-o", "json"}
	if manifest != nil {
		command = append(command, "-f", "-")
	}
	for _, name := range deleted {
		command = append(command, "--delete", antrea.ID{Kind: antrea.KindNetNamespace, Name: name}.Ref().String())
	}
	answers, err := a.Ask(ctx, notes, manifest, command...)
	if err != nil {
		return false, err
	}
	complete := true
	var all []string
	for _, answer := range answers {
		var p preview.Preview
		if err := decode(answer, &p); err != nil {
			fmt.Fprintf(notes, "cannot say which connections of a node the change denies: %s\n", printable.Lines(err.Error()))
			complete = false
			continue
		}
		for _, o := range p.Outlived {
			all = append(all, fmt.Sprintf("  %s  (%s -> %s)", o.Connection, o.From, o.To))
		}
	}
	slices.Sort(all)
	all = slices.Compact(all) // the nodes of both ends may have it
	if len(all) > 0 {
		fmt.Fprintf(out, "the change denies %s:\n", preview.Count(len(all), "established connection"))
		for _, line := range all {
			if _, err := fmt.Fprintln(out, printable.Lines(line)); err != nil {
				return false, err
			}
		}
	}
	return complete, nil
}

// deleted returns the namespaces that have a NetNamespace: to isolate them is to delete it.
func deleted(ctx context.Context, k kubectl, names []string) (all []string, err error) {
	for _, name := range names {
		switch _, err := k.Get(ctx, change.NetNamespaces(), name); {
		case err == nil:
			all = append(all, name)
		case !apierrors.IsNotFound(err):
			return nil, err
		}
	}
	return all, nil
}

// joined returns the NetNamespaces after a join, as a manifest. A number that is not given out yet is any free one.
func joined(ctx context.Context, k kubectl, names []string, to string) ([]byte, []string, error) {
	if err := exists(ctx, k, to); err != nil {
		return nil, nil, err
	}
	objects, err := change.Changer{Cluster: k}.All(ctx)
	if err != nil {
		return nil, nil, err
	}
	used := map[int64]bool{0: true}
	var number *int64
	for _, o := range objects {
		if o.NetID != nil {
			used[*o.NetID] = true
		}
		if o.Name == to {
			number = tenancy.NumberOf(o)
		}
	}
	for _, name := range names {
		if err := cmp.Or(change.CannotJoin(name, to, number), change.OtherAddresses(objects, name, to)); err != nil {
			return nil, nil, err
		}
	}
	if number == nil {
		number = new(int64)
		for used[*number] {
			*number++
		}
	}
	type object map[string]any
	var items []object
	for _, name := range append([]string{to}, names...) {
		items = append(items, object{
			"apiVersion": change.NetNamespaces().GroupVersion().String(), "kind": "NetNamespace",
			"metadata": object{"name": name}, "netname": name, "netid": *number,
		})
	}
	manifest, err := json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": items})
	return manifest, nil, err
}
