package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/felixlike/felixlike/internal/socketapi"
)

// stream calls following once the agent answers, and got for each line of the answer, until ctx ends or one
// of the two fails. The end of ctx is no error.
func stream[Line any](ctx context.Context, c *Client, path string, following func(), got func(Line) error) error {
	if err := lines(ctx, c, path, following, got); err != nil && ctx.Err() == nil {
		return fmt.Errorf("agent at %s: %s: %w", c.path, path, err)
	}
	return nil
}

func lines[Line any](ctx context.Context, c *Client, path string, following func(), got func(Line) error) error {
	answer, err := c.api.Open(ctx, path)
	if err != nil {
		return err
	}
	defer answer.Close()
	following()
	lines := bufio.NewScanner(answer)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue // a sign of life
		}
		var failure socketapi.ErrorBody
		var line Line
		if err := errors.Join(json.Unmarshal(lines.Bytes(), &failure), json.Unmarshal(lines.Bytes(), &line)); err != nil {
			return fmt.Errorf("decode answer: %w", err)
		}
		if failure.Error != "" {
			return errors.New(failure.Error)
		}
		if err := got(line); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return errors.New("the agent has ended")
}

// aliveEvery is how long a line may take that shows whether the caller still reads.
const aliveEvery = 5 * time.Second

// follow answers with a line for each packet, until the caller hangs up. It returns a failure before the
// first line.
func follow[Line any](events func(ctx context.Context, alive time.Duration, got func(*Line) error) error, w http.ResponseWriter, r *http.Request) error {
	flusher := http.NewResponseController(w)
	begun := false
	line := func(v any) error {
		if v != nil {
			if err := json.NewEncoder(w).Encode(v); err != nil {
				return err
			}
		} else if _, err := io.WriteString(w, "\n"); err != nil {
			return err
		}
		return flusher.Flush()
	}
	err := events(r.Context(), aliveEvery, func(d *Line) error {
		if !begun {
			begun = true
			w.Header().Set("Content-Type", "application/jsonl")
			w.WriteHeader(http.StatusOK)
		}
		if d == nil {
			return line(nil)
		}
		return line(d)
	})
	switch {
	case !begun:
		return err
	case err != nil && r.Context().Err() == nil:
		_ = line(socketapi.ErrorBody{Error: err.Error()})
	}
	return nil
}
