package main

import (
	"log/slog"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// memoryRatio is Go's memory limit as a part of the container's limit. The rest is
	// for memory that the Go runtime does not count: page cache of written files and
	// kernel memory of sockets.
	memoryRatio = 0.9
	// memoryRefresh is the time between two looks at the limit, which may be changed
	// while the container runs.
	memoryRefresh = time.Minute
)

// limitMemory keeps Go's memory limit below the limit of the cgroup (version 1 or 2).
// GOMEMLIMIT in the environment overrides it.
func limitMemory(log *slog.Logger, cgroup memlimit.Provider) {
	limit, err := memlimit.SetGoMemLimitWithOpts(
		memlimit.WithProvider(cgroup), memlimit.WithRatio(memoryRatio), memlimit.WithRefreshInterval(memoryRefresh))
	switch {
	case err != nil:
		log.Warn("the container's memory limit is not known: Go's own has to be set by GOMEMLIMIT", "error", err)
	case limit > 0:
		log.Info("memory limit of the container is kept", "goMemLimit", limit)
	}
}
