// Package socketapi is HTTP with JSON on a unix socket that only root may use: the
// server of the agent's two sockets and of a lab's, and the client of felixctl, felixlab and
// the CNI plugin.
//
// The first element of a path is the version of the API. A request may carry the
// parameter "timeout": the time that its caller waits. The context of a request ends with
// that time, and when the caller hangs up. A refusal is a JSON object with "code" (Code)
// and "error" (a sentence for people).
//
// The package knows no feature. It is tested on real sockets.
package socketapi
