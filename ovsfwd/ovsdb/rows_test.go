package ovsdb

import (
	"reflect"
	"testing"

	"github.com/ovn-kubernetes/libovsdb/model"
)

// TestCloneOfARow: a copy has all fields, shares nothing with the row, and costs few allocations: by way
// of JSON it costs more than fifty.
func TestCloneOfARow(t *testing.T) {
	row := &interfaceRow{}
	fields := reflect.ValueOf(row).Elem()
	for i := range fields.NumField() {
		switch f := fields.Field(i).Addr().Interface().(type) {
		case *string:
			*f = "a"
		case **string:
			*f = new(string)
		case **int:
			*f = new(int)
		case *map[string]string:
			*f = map[string]string{"a": "b"}
		default:
			t.Fatalf("no value for a field of type %T", f)
		}
	}
	c, is := model.Clone(row).(*interfaceRow)
	if !is || !reflect.DeepEqual(c, row) {
		t.Fatalf("%+v is no copy of %+v", c, row)
	}
	copied := reflect.ValueOf(c).Elem()
	for i := range fields.NumField() {
		f := copied.Field(i)
		if (f.Kind() == reflect.Pointer || f.Kind() == reflect.Map) && f.Pointer() == fields.Field(i).Pointer() {
			t.Errorf("%s is shared", copied.Type().Field(i).Name)
		}
	}
	if empty := model.Clone(&interfaceRow{}); !reflect.DeepEqual(empty, &interfaceRow{}) {
		t.Errorf("copy of an empty row: %+v", empty)
	}
	row.ExternalIDs = map[string]string{keyPodNamespace: "a", keyPodName: "b", keyMAC: "c", keyAddresses: "d", keySandbox: "e", keyPodInterface: "f", keyNetNS: "g"}
	if n := testing.AllocsPerRun(100, func() { model.Clone(row) }); n > 20 {
		t.Errorf("%v allocations", n)
	}
}
