package pipeline

import "testing"

// Every table of the pipelines has a number of its own and a name, and no other has one.
func TestEveryTableHasAName(t *testing.T) {
	used := map[uint8]bool{}
	admin := fullNode()
	admin.AdminIngress, admin.OrderedEgress = true, true
	for _, n := range []Node{testNode(), offloadNode(), fullNode(), admin} {
		for _, f := range all(n) {
			used[f.Table] = true
		}
	}
	last := -1
	for _, table := range Tables() {
		if int(table.Number) <= last || table.Name == "" || table.Label == "" {
			t.Errorf("%+v behind table %d", table, last)
		}
		last = int(table.Number)
		if got, known := TableOf(table.Number); !known || got != table {
			t.Errorf("table %d is %+v", table.Number, got)
		}
	}
	for number := range used {
		if _, known := TableOf(number); !known {
			t.Errorf("table %d has flows and no name", number)
		}
	}
	if got, known := TableOf(TableNowhere); known {
		t.Errorf("a table of the pipeline: %+v", got)
	}
}
