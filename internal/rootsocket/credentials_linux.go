package rootsocket

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// credentials returns process and user at the other end of a unix socket, as they were when
// it connected or began to listen.
func credentials(socket syscall.RawConn) (pid int, uid uint32, err error) {
	var cred *unix.Ucred
	var failed error
	err = socket.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err == nil {
		err = failed
	}
	if err != nil {
		return 0, 0, err
	}
	return int(cred.Pid), cred.Uid, nil
}
