package dump

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// The schema is that of libnftables-json(5). This file translates it to nft(8)'s
// language, for the statements that felixlike writes.

// only returns the one key of an object and its value.
func only(raw json.RawMessage) (kind string, body json.RawMessage, ok bool) {
	var o map[string]json.RawMessage
	if json.Unmarshal(raw, &o) != nil || len(o) != 1 {
		return "", nil, false
	}
	for kind, body = range o {
	}
	return kind, body, true
}

// statement writes a statement of a rule, or a verdict.
func statement(raw json.RawMessage) (string, bool) {
	kind, body, ok := only(raw)
	if !ok {
		return "", false
	}
	switch kind {
	case "accept", "drop", "return", "masquerade":
		return kind, string(body) == "null"
	case "jump", "goto":
		var b struct{ Target string }
		ok := json.Unmarshal(body, &b) == nil
		return kind + " " + b.Target, ok && plainWord(b.Target)
	case "counter":
		var b struct{ Packets, Bytes uint64 }
		ok := json.Unmarshal(body, &b) == nil
		return fmt.Sprintf("counter packets %d bytes %d", b.Packets, b.Bytes), ok
	case "match":
		return matchStatement(body)
	case "mangle":
		return mangleStatement(body)
	case "vmap":
		var b struct{ Key, Data json.RawMessage }
		if json.Unmarshal(body, &b) != nil {
			return "", false
		}
		key, ok1 := expression(b.Key)
		data, ok2 := expression(b.Data)
		return key + " vmap " + data, ok1 && ok2
	case "snat":
		return snatStatement(body)
	case "reject":
		return rejectStatement(body)
	case "limit", "log":
		return reportStatement(kind, body)
	}
	return "", false
}

// reportStatement writes one of the two statements of a report. A limit or log with any
// other property is foreign.
func reportStatement(kind string, body json.RawMessage) (string, bool) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if kind == "limit" {
		var b struct {
			Rate, Burst uint32
			Per         string
			BurstUnit   string `json:"burst_unit"`
		}
		ok := d.Decode(&b) == nil && b.BurstUnit == ""
		return fmt.Sprintf("limit rate %d/%s burst %d packets", b.Rate, b.Per, b.Burst), ok && plainWord(b.Per)
	}
	var b struct {
		Prefix         string
		Group, Snaplen *uint32
	}
	if d.Decode(&b) != nil || b.Group == nil || b.Snaplen == nil || !plainWord(b.Prefix) {
		return "", false
	}
	return fmt.Sprintf(`log prefix "%s" group %d snaplen %d`, b.Prefix, *b.Group, *b.Snaplen), true
}

// rejectStatement writes a reject of ours.
func rejectStatement(body json.RawMessage) (string, bool) {
	var b struct{ Type, Expr string }
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if d.Decode(&b) != nil {
		return "", false
	}
	switch b.Type {
	case "tcp reset":
		return "reject with tcp reset", b.Expr == ""
	case "icmpx":
		return "reject with icmpx " + b.Expr, plainWord(b.Expr)
	}
	return "", false
}

// plainWord reports whether a text is one word of nft's language.
func plainWord(s string) bool { return s != "" && !strings.ContainsAny(s, " \t\"") }

func matchStatement(body json.RawMessage) (string, bool) {
	var b struct {
		Op          string
		Left, Right json.RawMessage
	}
	if json.Unmarshal(body, &b) != nil {
		return "", false
	}
	left, ok1 := expression(b.Left)
	right, ok2 := expression(b.Right)
	if left == "iifname" || left == "oifname" {
		right = strconv.Quote(right)
	}
	switch b.Op {
	case "!=":
		right = "!= " + right
	case "==":
		if strings.Contains(left, "&") {
			right = "== " + right
		}
	case "in":
	default:
		return "", false
	}
	return left + " " + right, ok1 && ok2
}

func mangleStatement(body json.RawMessage) (string, bool) {
	var b struct{ Key, Value json.RawMessage }
	if json.Unmarshal(body, &b) != nil {
		return "", false
	}
	key, ok1 := expression(b.Key)
	value, ok2 := expression(b.Value)
	return key + " set " + value, ok1 && ok2
}

func snatStatement(body json.RawMessage) (string, bool) {
	var b struct {
		Family string
		Addr   json.RawMessage
		Port   json.RawMessage
		Flags  json.RawMessage
		Type   json.RawMessage `json:"type_flags"`
	}
	if json.Unmarshal(body, &b) != nil || len(b.Port) > 0 || len(b.Flags) > 0 || len(b.Type) > 0 {
		return "", false
	}
	addr, ok := expression(b.Addr)
	return "snat " + b.Family + " to " + addr, ok
}

// expression writes a value, or where one comes from.
func expression(raw json.RawMessage) (string, bool) {
	if len(raw) == 0 {
		return "", false
	}
	switch raw[0] {
	case '"':
		s := textOf(raw)
		return s, plainWord(s)
	case '[':
		return joinedExpressions(raw, ",")
	case '{':
	default:
		n, err := strconv.ParseUint(string(raw), 10, 64)
		return strconv.FormatUint(n, 10), err == nil
	}
	kind, body, ok := only(raw)
	if !ok {
		return "", false
	}
	switch kind {
	case "payload":
		var b struct{ Protocol, Field string }
		ok := json.Unmarshal(body, &b) == nil
		return b.Protocol + " " + b.Field, ok && plainWord(b.Protocol) && plainWord(b.Field)
	case "meta":
		return metaExpression(body)
	case "ct":
		return ctExpression(body)
	case "fib":
		var b struct {
			Result string
			Flags  []string
		}
		ok := json.Unmarshal(body, &b) == nil
		return "fib " + strings.Join(b.Flags, " . ") + " " + b.Result, ok
	case "concat":
		return joinedExpressions(body, " . ")
	case "prefix":
		var b struct {
			Addr string
			Len  uint8
		}
		ok := json.Unmarshal(body, &b) == nil
		return fmt.Sprintf("%s/%d", b.Addr, b.Len), ok
	case "range":
		return joinedExpressions(body, "-")
	case "&":
		return joinedExpressions(body, " & ")
	case "|":
		return joinedExpressions(body, " | ")
	}
	return "", false
}

// metaExpression writes a meta key; nft lists interfaces without the word "meta".
func metaExpression(body json.RawMessage) (string, bool) {
	var b struct{ Key string }
	ok := json.Unmarshal(body, &b) == nil
	switch b.Key {
	case "iif", "oif", "iifname", "oifname":
		return b.Key, ok
	}
	return "meta " + b.Key, ok
}

func ctExpression(body json.RawMessage) (string, bool) {
	var b struct{ Key, Dir string }
	ok := json.Unmarshal(body, &b) == nil
	if b.Dir != "" {
		return "ct " + b.Dir + " " + b.Key, ok
	}
	return "ct " + b.Key, ok
}

func joinedExpressions(raw json.RawMessage, separator string) (string, bool) {
	var parts []json.RawMessage
	if json.Unmarshal(raw, &parts) != nil || len(parts) == 0 {
		return "", false
	}
	texts, all := make([]string, len(parts)), true
	for i, part := range parts {
		text, ok := expression(part)
		texts[i], all = text, all && ok
	}
	return strings.Join(texts, separator), all
}

// textOf returns a string as it is, and any other value as JSON.
func textOf(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}
