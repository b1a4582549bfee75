package ovsdb

import (
	"maps"
	"slices"
)

// rolePrefixes marks the rows of Flow_Table.
const rolePrefixes = "prefixes"

// maxPrefixes is the number of fields that a table of Open vSwitch before 3.5 tracks. Later versions track four, by
// default all that we need.
const maxPrefixes = 3

// tablesWith returns the bridge's flow_tables so that the tables of Config.Prefixes have a row with these fields. Tables
// with equal fields share a row. Rows of other programs stay: they may limit flows. A row that no bridge refers to is
// removed by the database.
func (p *plan) tablesWith(have map[int]string) (map[int]string, error) {
	column := p.c.db.Schema().Table("Flow_Table").Column("prefixes")
	if column == nil {
		return have, nil
	}
	wanted := p.c.cfg.Prefixes
	if column.TypeObj.Max() != maxPrefixes {
		wanted = nil // our rows, of before an upgrade, would limit it
	}
	all, err := list[flowTableRow](p.ctx, p.c)
	if err != nil {
		return nil, err
	}
	rows := map[string]*flowTableRow{}
	for _, r := range all {
		rows[r.UUID] = r
	}
	fits := func(r *flowTableRow, fields []string) bool {
		return r != nil && r.ExternalIDs[keyRole] == rolePrefixes && slices.Equal(slices.Sorted(slices.Values(r.Prefixes)), fields)
	}
	tables := maps.Clone(have)
	if tables == nil {
		tables = map[int]string{}
	}
	maps.DeleteFunc(tables, func(n int, row string) bool {
		return wanted[n] == nil && rows[row] != nil && rows[row].ExternalIDs[keyRole] == rolePrefixes
	})
	for _, n := range slices.Sorted(maps.Keys(wanted)) {
		fields := wanted[n]
		if r, exists := rows[tables[n]]; exists && (r.ExternalIDs[keyRole] != rolePrefixes || fits(r, fields)) {
			continue
		}
		tables[n] = ""
		for _, used := range slices.Sorted(maps.Values(tables)) {
			if fits(rows[used], fields) {
				tables[n] = used
			}
		}
		if tables[n] == "" {
			row := flowTableRow{UUID: p.name(), Prefixes: fields, ExternalIDs: p.c.cfg.marks(rolePrefixes)}
			if err := p.add(p.c.db.Create(&row)); err != nil {
				return nil, err
			}
			tables[n], rows[row.UUID] = row.UUID, &row
		}
	}
	return tables, nil
}
