package bench

// Section is a part of a report as a page shows it: a table, and text below it.
type Section struct {
	Heading string
	Header  []string
	Rows    [][]string
	// Left is how many columns, from the left, are words; the rest are figures.
	Left int
	Text []string
}

// Sections returns the title of a report and all that it says, as Markdown has
// it.
func (r *Report) Sections() (title string, all []Section) {
	d := r.document()
	for i := range d.sections {
		s := d.sections[i].visible()
		all = append(all, Section{Heading: s.heading, Header: s.header, Rows: s.rows, Left: s.left, Text: s.text})
	}
	return d.title, all
}

// visible returns the section without columns that have nothing in any row.
func (s section) visible() section {
	out := s
	out.header, out.left, out.rows = nil, 0, make([][]string, len(s.rows))
	for i, h := range s.header {
		if s.empty(i) {
			continue
		}
		out.header = append(out.header, h)
		if i < s.left {
			out.left++
		}
		for n, cells := range s.rows {
			out.rows[n] = append(out.rows[n], cells[i])
		}
	}
	return out
}
