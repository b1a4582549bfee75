//go:build !unix

package manifests

import "os"

const noFollow = 0

// isOurs reports that no file is ours, so that no copy is made or read: only agents keep copies, and no agent runs here.
func isOurs(os.FileInfo) bool { return false }

// deviceOf returns zeros: only its time and size tell a file from a former one.
func deviceOf(os.FileInfo) (device, inode uint64) { return 0, 0 }
