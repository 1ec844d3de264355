package packhorse

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const longestPause = 30.0

// Event is something that happened. Data is JSON; who takes up behind it follows after its ID.
type Event struct {
	Kind, ID string
	Data     json.RawMessage
}

// IsGap reports whether it stands for events that nobody can show any more; those behind it follow.
func (e Event) IsGap() bool {
	return e.Kind == "gap"
}

// Refused is the answer of a service that shows no events: ProblemOf says why.
type Refused struct {
	Status   int
	document []byte
}

func (e Refused) Error() string {
	return fmt.Sprintf("the service shows no events: %d %s", e.Status, e.document)
}

// Body returns the problem document.
func (e Refused) Body() []byte {
	return e.document
}

// Events follows a stream of server-sent events. A connection that is lost is opened again for ever,
// behind the last event; the first one is tried as Retries says.
type Events struct {
	// Silence is after how long without a word a connection is lost; there is one every 15 seconds.
	Silence time.Duration

	calls              context.Context
	end                context.CancelFunc
	url, token, lastID string
	retries            Retries
	body               io.ReadCloser
	lines              *bufio.Reader
	isConnected        bool
	retry              float64
	losses             int
}

// Follow returns the events behind the one with the ID after; "" begins now. url is that of the
// stream with its query, for example http://127.0.0.1:8080/events?types=package.
func Follow(calls context.Context, url, token, after string, retries Retries) *Events {
	calls, end := context.WithCancel(calls)
	return &Events{
		Silence: 45 * time.Second,
		calls:   calls, end: end, url: url, token: token, lastID: after, retries: retries, retry: 1,
	}
}

// Next waits for the next event. An error is for good: a refusal, nobody at the first try, the end of
// the context, or that it is closed.
func (e *Events) Next() (Event, error) {
	for {
		if err := e.open(); err != nil {
			return Event{}, err
		}
		event, found, err := e.block()
		if err == nil && found {
			return event, nil
		}
		if err != nil {
			if err := e.pause(); err != nil {
				return Event{}, err
			}
		}
	}
}

// Close ends the connection, and what waits on it for the next event, in whatever goroutine.
func (e *Events) Close() {
	e.end()
}

func (e *Events) drop() {
	if e.body != nil {
		_ = e.body.Close()
		e.body = nil
	}
}

func (e *Events) open() error {
	for e.body == nil {
		answer, err := e.asked()
		if err == nil && answer.StatusCode == http.StatusOK && !isStream(answer) {
			_ = answer.Body.Close()
			err = errors.New("the answer is no stream of events")
		}
		if err == nil && answer.StatusCode == http.StatusOK {
			e.isConnected, e.body, e.lines = true, answer.Body, bufio.NewReader(answer.Body)
			return nil
		}
		isPassing := true
		if err == nil {
			document, _ := io.ReadAll(io.LimitReader(answer.Body, longestRefusal))
			_ = answer.Body.Close()
			err = Refused{answer.StatusCode, document}
			isPassing = answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode >= 500
		}
		if !e.isConnected || !isPassing {
			return err
		}
		if err := e.pause(); err != nil {
			return err
		}
	}
	return nil
}

func (e *Events) asked() (*http.Response, error) {
	request, err := http.NewRequestWithContext(e.calls, http.MethodGet, e.url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set("Cache-Control", "no-store")
	if e.token != "" {
		request.Header.Set("Authorization", "Bearer "+e.token)
	}
	if e.lastID != "" {
		request.Header.Set("Last-Event-ID", e.lastID)
	}
	e.retries.Timeout = e.Silence
	e.retries = e.retries.inTime(e.Silence)
	return e.retries.RoundTrip(request)
}

func isStream(answer *http.Response) bool {
	return strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream")
}

// pause waits until a lost stream is opened again.
func (e *Events) pause() error {
	e.drop()
	seconds := math.Min(longestPause, e.retry*math.Pow(2, float64(e.losses)))
	e.losses++
	if err := e.retries.sleep(e.calls, time.Duration(seconds*float64(time.Second))); err != nil {
		return err
	}
	return e.calls.Err()
}

// block reads up to an empty line: an event, or how far the stream is.
func (e *Events) block() (event Event, found bool, err error) {
	id, data, isEmpty := "", []string{}, true
	for {
		line, err := e.lines.ReadString('\n')
		if err != nil {
			return event, false, err // what is not complete is sent again
		}
		line = strings.TrimRight(line, "\r\n")
		if line == "" && !isEmpty {
			break
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		isEmpty = isEmpty && field == ""
		switch field {
		case "event":
			event.Kind = value
		case "id":
			id = value
		case "data":
			data = append(data, value)
		case "retry":
			if told, err := strconv.ParseUint(value, 10, 32); err == nil && told > 0 {
				e.retry = float64(told) / 1000
			}
		}
	}
	e.losses = 0
	if id != "" {
		e.lastID = id
	}
	event.ID, event.Data = e.lastID, json.RawMessage(strings.Join(data, "\n"))
	return event, len(data) > 0, nil
}
