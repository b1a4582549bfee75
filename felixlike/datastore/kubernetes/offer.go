package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

// askEvery is the interval between two looks for absent kinds: a new CustomResourceDefinition
// may bring them. Only an upgrade of the API server brings kinds of its own.
const (
	askEvery        = time.Minute
	askEveryBuiltIn = 10 * time.Minute
)

// offer looks for the optional kinds of one group of the API while some of them are absent.
// One request of each interval asks for all of them.
type offer struct {
	gv      schema.GroupVersion
	members []kindName
	every   time.Duration
	log     *slog.Logger

	mu sync.Mutex
	// served has the last answer about each member.
	served map[kindName]bool
	// said are the absent kinds that the log has.
	said []string
}

// newOffers returns an offer for each group that has optional kinds.
func newOffers(log *slog.Logger) []*offer {
	var all []*offer
	for k := range kinds {
		if !k.definition().optional {
			continue
		}
		gv := k.resource().GroupVersion()
		at := slices.IndexFunc(all, func(o *offer) bool { return o.gv == gv })
		if at < 0 {
			at = len(all)
			o := &offer{gv: gv, every: askEvery, log: log.With("group", gv.String()), served: map[kindName]bool{}}
			if k == kindServiceCIDR {
				o.every = askEveryBuiltIn
			}
			all = append(all, o)
		}
		all[at].members = append(all[at].members, k)
	}
	return all
}

// note records whether a kind is served. Once all members are known, the log names those
// that are absent: one message for all of them.
func (o *offer) note(k kindName, served bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.served[k] = served
	if len(o.served) < len(o.members) {
		return
	}
	var absent []string
	for _, m := range o.members {
		if !o.served[m] {
			absent = append(absent, m.String())
		}
	}
	if slices.Equal(o.said, absent) {
		return
	}
	o.said = absent
	switch {
	case slices.Contains(absent, kindServiceCIDR.String()):
		o.log.Info("the API server has no ServiceCIDRs: backend openflow needs the setting serviceCIDRs where pods use Services")
	case len(absent) > 0:
		o.log.Info("the API server does not serve these kinds; the agent asks for them every minute", "kinds", absent)
	default:
		o.log.Info("the API server serves all kinds of this group that the agent reads")
	}
}

// absent returns the members that are absent.
func (o *offer) absent() []kindName {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(o.members), func(k kindName) bool {
		served, known := o.served[k]
		return served || !known
	})
}

// run calls found for each absent kind that the API server may have now, until ctx ends.
func (o *offer) run(ctx context.Context, c *clients, found func(kindName)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait.Jitter(o.every, 0.5)):
		}
		absent := o.absent()
		if len(absent) == 0 {
			continue
		}
		names, err := c.resources(ctx, o.gv)
		for _, k := range absent {
			if err != nil || slices.Contains(names, k.resource().Resource) {
				found(k)
			}
		}
	}
}

// resources returns the resources of a group that the API server has; none if it does not have
// the group. By default every authenticated account may ask that, also for kinds that it may not read.
func (c *clients) resources(ctx context.Context, gv schema.GroupVersion) ([]string, error) {
	data, err := c.networking.Get().AbsPath("/apis", gv.Group, gv.Version).SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all metav1.APIResourceList
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	if all.GroupVersion != gv.String() {
		return nil, fmt.Errorf("asked for the resources of %s: got those of %q", gv, all.GroupVersion)
	}
	var names []string
	for _, r := range all.APIResources {
		names = append(names, r.Name)
	}
	return names, nil
}

// unserved reports whether the API server says that it has no such kind.
func (c *clients) unserved(ctx context.Context, k kindName) bool {
	names, err := c.resources(ctx, k.resource().GroupVersion())
	return err == nil && !slices.Contains(names, k.resource().Resource)
}
