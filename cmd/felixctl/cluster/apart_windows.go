package cluster

import "syscall"

// apart keeps interrupts of the terminal from a command.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
