// Package cniv1 is the first version of the API between the CNI plugin and the
// agent, generated from cni.proto. It holds no logic. Generating needs protoc,
// protoc-gen-go and protoc-gen-go-grpc.
package cniv1

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative cni.proto
