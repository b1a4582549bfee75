//go:build unix

package manifests

import (
	"os"
	"syscall"
)

// noFollow makes opening a symbolic link an error.
const noFollow = syscall.O_NOFOLLOW

// isOurs reports whether a file belongs to the user of this process.
func isOurs(info os.FileInfo) bool {
	of, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(of.Uid) == os.Geteuid()
}

// deviceOf returns the device and the number of a file.
func deviceOf(info os.FileInfo) (device, inode uint64) {
	if of, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(of.Dev), of.Ino // Dev is not uint64 everywhere
	}
	return 0, 0
}
