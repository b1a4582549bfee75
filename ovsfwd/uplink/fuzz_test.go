package uplink

import (
	"os"
	"testing"
)

// FuzzNotes parses any alias of the bridge's port and any journal.
func FuzzNotes(f *testing.F) {
	for _, alias := range []string{"", aliasOf, aliasOf + "eth0" + filtering + "1" + withoutGRO, aliasOf + withoutGRO, "another program's"} {
		f.Add(alias, []byte(`{"boot":"","namespace":1,"uplink":"lo","index":1,"routes":[{"Dst":{"IP":"10.0.0.0","Mask":"/wAAAA=="},"Gw":""}]}`))
		f.Add(alias, []byte(`{"uplink":"lo","routes":[null,{"Via":{"Addr":""}}]`))
	}
	f.Fuzz(func(t *testing.T, alias string, content []byte) {
		if note := noted(alias); note.name != "" && noted(note.alias()) != note {
			t.Fatalf("%q is %+v, and %+v again", alias, note, noted(note.alias()))
		}
		in := In(t.TempDir())
		if err := os.WriteFile(in.file(journalFile), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, link, err := in.readJournal(); link != nil || err != nil {
			t.Fatalf("a journal without this boot's identifier is taken: %v, %v", link, err)
		}
	})
}
