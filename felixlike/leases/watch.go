package leases

import (
	"context"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Watch keeps the objects that a label selector matches in a store, until ctx ends, and calls signal after each change. It returns
// when the first listing is complete, with a function that waits for the end; without a store if ctx has ended before.
func Watch(ctx context.Context, objects dynamic.ResourceInterface, selector string, said *Said, signal func()) (cache.Store, func()) {
	silent := logr.Discard() // said has each failure once
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		Logger:     &silent,
		ObjectType: &unstructured.Unstructured{},
		ListerWatcher: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				o.LabelSelector = selector
				list, err := objects.List(ctx, o)
				said.Note(ctx, err)
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				o.LabelSelector = selector
				found, err := objects.Watch(ctx, o)
				if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !apierrors.IsInvalid(err) {
					said.Note(ctx, err)
				}
				return found, err
			},
		},
		// The managed fields are the largest part of an object.
		Transform: func(o any) (any, error) {
			if u, ok := o.(*unstructured.Unstructured); ok {
				u.SetManagedFields(nil)
			}
			return o, nil
		},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { signal() },
			UpdateFunc: func(any, any) { signal() },
			DeleteFunc: func(any) { signal() },
		},
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.RunWithContext(klog.NewContext(ctx, logr.Discard()))
	}()
	end := func() { <-ended }
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, end
	}
	return store, end
}
