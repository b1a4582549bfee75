package policy_test

import (
	"fmt"
	"testing"
)

// BenchmarkChange makes one change and its opposite in turn, each with a Flush,
// in clusters of several sizes.
func BenchmarkChange(b *testing.B) {
	for _, size := range []int{1_000, 10_000, 100_000} {
		e := changeCluster(size)
		for _, c := range changes(size) {
			b.Run(fmt.Sprintf("%s/pods=%d", c.name, size), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					c.make(e, i%2 == 0)
					if n := len(e.Flush()); n == 0 {
						b.Fatal("changes nothing")
					}
				}
				c.make(e, false)
				e.Flush()
			})
		}
	}
}
