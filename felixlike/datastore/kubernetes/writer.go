package kubernetes

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/felixlike/felixlike/felixlike/datastore"
)

// controller is the reporting controller of our Events.
const controller = "felixlike.io/agent"

// maxNote is the most bytes that the API server takes as an Event's note.
const maxNote = 1024

// writer writes Events, by a client of their group.
type writer struct{ events rest.Interface }

// create writes an Event; that it exists is as good.
func (w writer) create(ctx context.Context, e *eventsv1.Event) error {
	err := w.events.Post().Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Error()
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// repeat says of an Event that it is still so, and writes it again if the API
// server has dropped it.
func (w writer) repeat(ctx context.Context, e *eventsv1.Event, count int32, now time.Time) error {
	patch, err := json.Marshal(map[string]any{
		"series": eventsv1.EventSeries{Count: max(count, 2), LastObservedTime: metav1.NewMicroTime(now)},
	})
	if err != nil {
		return err
	}
	err = w.events.Patch(types.MergePatchType).Namespace(e.Namespace).Resource("events").Name(e.Name).Body(patch).Do(ctx).Error()
	if apierrors.IsNotFound(err) {
		return w.create(ctx, e)
	}
	return err
}

// eventOf returns the Event about a problem.
func eventOf(n datastore.Notice, uid types.UID, name, node string, now time.Time) *eventsv1.Event {
	apiVersion, kind := corev1.SchemeGroupVersion.String(), n.Object.Kind
	for k := range kinds {
		if k.String() == n.Object.Kind {
			apiVersion, kind = k.resource().GroupVersion().String(), k.api()
		}
	}
	note := n.Reason
	if n.Field != "" {
		note = n.Field + ": " + note
	}
	if len(note) > maxNote {
		note = strings.ToValidUTF8(note[:maxNote-3], "") + "..."
	}
	e := &eventsv1.Event{
		// Events of objects without a namespace are in this one.
		ObjectMeta: metav1.ObjectMeta{Namespace: cmp.Or(n.Object.Namespace, metav1.NamespaceDefault), Name: name},
		EventTime:  metav1.NewMicroTime(now), ReportingController: controller, ReportingInstance: node[:min(len(node), 128)],
		Type: corev1.EventTypeWarning, Reason: n.Kind, Action: "Program", Note: note,
		Regarding: corev1.ObjectReference{
			APIVersion: apiVersion, Kind: kind, Namespace: n.Object.Namespace, Name: n.Object.Name, UID: uid,
		},
	}
	if n.Known == datastore.KnownHere {
		e.Related = &corev1.ObjectReference{APIVersion: corev1.SchemeGroupVersion.String(), Kind: kindNode.String(), Name: node}
	}
	return e
}
