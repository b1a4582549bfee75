package bench

import "github.com/felixlike/felixlike/test/measure"

// Sections returns the title of a report and all that it says, as Markdown has
// it.
func (r *Report) Sections() (title string, all []measure.Section) {
	d := r.document()
	for i := range d.Sections {
		all = append(all, d.Sections[i].Visible())
	}
	return d.Title, all
}
