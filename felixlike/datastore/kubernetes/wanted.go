package kubernetes

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/felixlike/felixlike/model"
)

// message selects the fields of a protobuf message to decode. An ordinary pod has
// 3.3 kB: 2.3 kB are managed fields, and only 0.3 kB are wanted.
type message struct {
	// fields are the wanted ones; nil means all of the message.
	fields map[protowire.Number]message
	// keys, if not nil, are the wanted keys of a map of which this is an entry.
	keys []string
}

// whole is a message of which everything is wanted.
func whole() message { return message{} }

// all returns a message of which these fields are wanted, each as a whole.
func all(numbers ...protowire.Number) message {
	m := message{fields: map[protowire.Number]message{}}
	for _, n := range numbers {
		m.fields[n] = whole()
	}
	return m
}

// with returns the message with one more wanted field.
func (m message) with(number protowire.Number, field message) message {
	m.fields[number] = field
	return m
}

// wanted returns the wanted fields of each kind: at least those that its trim keeps.
// The numbers are those of the API's generated.proto files, which never change
// (TestWantedFields).
func wanted() map[string]message {
	// name, namespace, uid, resourceVersion, labels, annotations
	meta := func() message {
		return all(1, 3, 5, 6, 11).with(12, message{keys: []string{staticUID, model.PublicKeyAnnotation, metav1.InitialEventsAnnotationKey}})
	}
	container := all(6, 24) // ports, restartPolicy
	kinds := map[string]message{
		"Node":        all().with(1, meta().with(8, whole())).with(2, all(1, 7)).with(3, all(5)), // creationTimestamp; podCIDR, podCIDRs; addresses
		"Namespace":   all().with(1, meta()),
		"ServiceCIDR": all(2).with(1, meta()), // spec
		// The spec without selector and without fields for controllers of load balancers, and status.loadBalancer.
		"Service": all().with(1, meta().with(8, whole())).with(2, all(1, 3, 4, 5, 7, 9, 11, 12, 14, 18, 22)).with(3, all(1)),
		// addresses, conditions, nodeName, hints; ports; addressType
		"EndpointSlice": all(3, 4).with(1, meta()).with(2, all(1, 2, 6, 8)),
		"Pod": all().with(1, meta()).
			with(2, all(10, 11).with(2, container).with(20, container)). // nodeName, hostNetwork, containers, initContainers
			with(3, all(1, 6, 12)),                                      // phase, podIP, podIPs
	}
	for kind, object := range kinds {
		kinds[kind+"List"] = all(1).with(2, object) // metadata, items
	}
	return kinds
}

// appendWanted appends the wanted fields of an encoded message.
func (m message) appendWanted(out, data []byte) ([]byte, error) {
	if m.fields == nil {
		return append(out, data...), nil
	}
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, kind, data[n:])
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		field, value := data[:n+size], data[n:n+size]
		data = data[n+size:]
		inner, want := m.fields[number]
		switch {
		case !want:
		case inner.keys != nil:
			entry, _ := protowire.ConsumeBytes(value)
			if slices.Contains(inner.keys, string(bytesField(entry, 1))) {
				out = append(out, field...)
			}
		case inner.fields == nil:
			out = append(out, field...)
		case kind != protowire.BytesType:
			return nil, fmt.Errorf("field %d is no message", number)
		default:
			var err error
			if out, err = inner.appendField(out, number, value); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// appendField appends a field with the wanted fields of its message.
func (m message) appendField(out []byte, number protowire.Number, value []byte) ([]byte, error) {
	inside, n := protowire.ConsumeBytes(value)
	if n < 0 {
		return nil, protowire.ParseError(n)
	}
	out = protowire.AppendTag(out, number, protowire.BytesType)
	at := len(out)
	out, err := m.appendWanted(out, inside)
	if err != nil {
		return nil, err
	}
	// The length precedes the content, but is only known behind it.
	var length [10]byte
	return slices.Insert(out, at, protowire.AppendVarint(length[:0], uint64(len(out)-at))...), nil
}

// bytesField returns the first field of that number, or nil.
func bytesField(data []byte, wanted protowire.Number) []byte {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil
		}
		if number == wanted && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(data[n:])
			return value
		}
		size := protowire.ConsumeFieldValue(number, kind, data[n:])
		if size < 0 {
			return nil
		}
		data = data[n+size:]
	}
	return nil
}
