package model

import (
	"encoding/json"
	"testing"
)

func TestProtocolInJSON(t *testing.T) {
	for _, p := range protocols() {
		text, err := json.Marshal(p)
		if err != nil || string(text) != `"`+p.String()+`"` {
			t.Errorf("%s: %s, %v", p, text, err)
		}
		var back Protocol
		if err := json.Unmarshal(text, &back); err != nil || back != p {
			t.Errorf("%s comes back as %s, %v", p, back, err)
		}
	}
	var p Protocol
	if err := json.Unmarshal([]byte(`"gre"`), &p); err == nil {
		t.Errorf("gre was taken for %s", p)
	}
}
