package probe

import (
	"fmt"

	"github.com/felixlike/felixlike/model"
)

// exchange is a flow being tried. try sends once more. The result
// goes to the answers channel of the exchange.
type exchange interface {
	try() error
	close()
}

func (f Flow) exchange(answers chan<- answer) (exchange, error) {
	switch f.Protocol {
	case model.TCP:
		return newStreamExchange(f, answers), nil
	case model.UDP:
		return newUDPExchange(f, answers)
	case model.SCTP:
		if sctpSockets(f.From.ns, f.Source) {
			return newStreamExchange(f, answers), nil
		}
		return newSCTPExchange(f, answers)
	}
	return nil, fmt.Errorf("unsupported protocol %s", f.Protocol)
}
