// Package packhorse sends requests again for the clients of the services, which are the packages
// beside it: publisher, content, jobs, topology and so on.
package packhorse

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math"
	mathrand "math/rand"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	Never          time.Duration = -1            // sends nothing again
	Forever        time.Duration = math.MaxInt64 // as producers do
	longestRefusal               = 1 << 20       // bytes
)

var job = regexp.MustCompile(`/jobs/\d+$`)

// Retries is a http.RoundTripper that sends a request again, under one Idempotency-Key, while the
// service is full (429) or away (502, 503, 504) or its answer is lost, and waits as Retry-After says.
type Retries struct {
	// Patience is how long after the first failure; 0 is a minute.
	Patience time.Duration
	// Repeatable says that every request may arrive twice: those of a producer, which are numbered,
	// or a clear with a bound. It is sent again when its answer is lost, and gets no Idempotency-Key.
	Repeatable bool
	// Timeout is after how long an answer that does not go on, or with HTTPClient does not begin, is lost;
	// 0 is 90 seconds, for a service may be asked to wait for 60. A Transport with a limit of its own for
	// the beginning, or of another type than http.Transport, keeps its own.
	Timeout time.Duration
	// Sleep waits; nil does until the context ends.
	Sleep func(context.Context, time.Duration) error
	// Transport sends a request; nil is http.DefaultTransport.
	Transport http.RoundTripper
}

// HTTPClient returns what the HTTPClient of a service's configuration takes. Make one and keep it, for
// its connections are its own.
func HTTPClient(retries Retries) *http.Client {
	return &http.Client{Transport: retries.inTime(retries.timeout())}
}

// RoundTrip implements http.RoundTripper.
func (r Retries) RoundTrip(asked *http.Request) (*http.Response, error) {
	request := r.prepared(asked)
	if err := checkNames(request.URL); err != nil {
		if asked.Body != nil {
			_ = asked.Body.Close()
		}
		return nil, err
	}
	twice := r.Repeatable || mayArriveTwice(request)
	began := time.Time{}
	for tries := 0; ; tries++ {
		answer, body, err := r.sent(request)
		if request.Context().Err() != nil || !isSentAgain(answer, body, err, twice) {
			if answer != nil && err == nil {
				answer = r.resumed(request, answer)
			}
			return answer, err
		}
		if began.IsZero() {
			began = time.Now()
		}
		pause := pauseAfter(answer, tries)
		if !isCopyable(request) || time.Since(began) > r.patience()-pause {
			return answer, err
		}
		if err := r.sleep(asked.Context(), pause); err != nil {
			return nil, err
		}
		if request, err = copyOf(request); err != nil {
			return nil, err
		}
	}
}

// Problem is a problem document (RFC 9457); Kind is the end of its type, for example "queue-full".
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Kind   string `json:"-"`
}

// ProblemOf returns the problem that an error of a service's client carries, if any.
func ProblemOf(err error) (problem Problem, found bool) {
	var refused interface{ Body() []byte }
	if !errors.As(err, &refused) || json.Unmarshal(refused.Body(), &problem) != nil || problem.Status == 0 {
		return Problem{}, false
	}
	problem.Kind = problem.Type[strings.LastIndex(problem.Type, "/")+1:]
	return problem, true
}

func (r Retries) prepared(asked *http.Request) *http.Request {
	request := asked.Clone(asked.Context())
	request.Header = http.Header{}
	for name, values := range asked.Header { // generated code has names as the documents do
		request.Header[http.CanonicalHeaderKey(name)] = values
	}
	if trees.MatchString(request.URL.Path) {
		request.URL.RawPath = strings.ReplaceAll(request.URL.EscapedPath(), "%2F", "/") // no name has one
	}
	takesKey := request.Method == http.MethodPost && keyed.MatchString(request.URL.Path)
	if takesKey && !r.Repeatable && request.Header.Get("Idempotency-Key") == "" {
		key := make([]byte, 16)
		_, _ = rand.Read(key)
		request.Header.Set("Idempotency-Key", hex.EncodeToString(key))
	}
	return request
}

// Whether the first DELETE ends a job where it waits, and a second one would forget it.
func isJob(path string) bool {
	return job.MatchString(path) && !strings.Contains(path, "/content/")
}

func mayArriveTwice(request *http.Request) bool {
	if request.Header.Get("Idempotency-Key") != "" {
		return true
	}
	if request.Method == http.MethodDelete && isJob(request.URL.Path) {
		return false
	}
	switch request.Method {
	case http.MethodGet, http.MethodHead:
		return true
	case http.MethodPut, http.MethodDelete: // a second try may not meet the condition that the first one has met
		return request.Header.Get("If-Match") == "" && request.Header.Get("If-None-Match") == ""
	}
	return false
}

// inTime returns retries for which an answer that does not begin is lost.
func (r Retries) inTime(limit time.Duration) Retries {
	transport, isUsual := r.Transport.(*http.Transport)
	if r.Transport == nil {
		transport, isUsual = http.DefaultTransport.(*http.Transport)
	}
	if isUsual && transport.ResponseHeaderTimeout == 0 {
		transport = transport.Clone()
		transport.ResponseHeaderTimeout = limit
		r.Transport = transport
	}
	return r
}

// sent reads an answer of JSON, or a refusal, as a whole: a cut in its middle is found here, and the
// connection is free for the next try.
func (r Retries) sent(request *http.Request) (*http.Response, []byte, error) {
	transport := r.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return nil, nil, err
	}
	answer.Body = timely{answer.Body, r.timeout()}
	whole := io.Reader(answer.Body)
	if answer.StatusCode >= 400 {
		whole = io.LimitReader(whole, longestRefusal)
	} else if !isWhole(answer.Header) {
		return answer, nil, nil
	}
	body, err := io.ReadAll(whole)
	_ = answer.Body.Close()
	if err != nil {
		return nil, nil, err
	}
	var said Problem
	// What is no problem comes from a proxy.
	if answer.StatusCode >= 400 && (json.Unmarshal(body, &said) != nil || said.Status == 0) {
		title := http.StatusText(answer.StatusCode)
		body, err = json.Marshal(Problem{"about:blank", title, answer.StatusCode, string(body), ""})
		answer.Header.Set("Content-Type", "application/problem+json")
	}
	answer.Body = io.NopCloser(bytes.NewReader(body))
	return answer, body, err
}

// timely is a body that is lost when nothing of it comes for so long.
type timely struct {
	io.ReadCloser
	limit time.Duration
}

func (t timely) Read(into []byte) (int, error) {
	late := time.AfterFunc(t.limit, func() { _ = t.Close() })
	defer late.Stop()
	return t.ReadCloser.Read(into)
}

// isWhole says whether it is JSON, and no binary that consists of some.
func isWhole(header http.Header) bool {
	kind := header.Get("Content-Type")
	return (kind == "" || strings.Contains(kind, "json")) && header.Get("Accept-Ranges") != "bytes"
}

func isSentAgain(answer *http.Response, body []byte, err error, twice bool) bool {
	if err != nil {
		var dialed *net.OpError
		return twice || errors.As(err, &dialed) && dialed.Op == "dial"
	}
	switch answer.StatusCode {
	case http.StatusTooManyRequests:
		return true
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return twice
	case http.StatusConflict: // an earlier try has not ended: its answer will be the same
		return bytes.Contains(body, []byte("/key-in-progress"))
	}
	return false
}

func pauseAfter(answer *http.Response, tries int) time.Duration {
	if answer != nil {
		if seconds, err := strconv.ParseUint(answer.Header.Get("Retry-After"), 10, 32); err == nil {
			return time.Duration(seconds) * time.Second
		}
	}
	seconds := math.Min(10, 0.1*math.Pow(2, float64(tries)))
	return time.Duration(seconds * (1 + mathrand.Float64()) / 2 * float64(time.Second))
}

func isCopyable(request *http.Request) bool {
	return request.Body == nil || request.Body == http.NoBody || request.GetBody != nil
}

func copyOf(request *http.Request) (again *http.Request, err error) {
	again = request.Clone(request.Context())
	if request.Body != nil && request.Body != http.NoBody {
		again.Body, err = request.GetBody()
	}
	return again, err
}

func (r Retries) timeout() time.Duration {
	if r.Timeout == 0 {
		return 90 * time.Second
	}
	return r.Timeout
}

func (r Retries) patience() time.Duration {
	if r.Patience == 0 {
		return time.Minute
	}
	return r.Patience
}

func (r Retries) sleep(calls context.Context, pause time.Duration) error {
	if r.Sleep != nil {
		return r.Sleep(calls, pause)
	}
	select {
	case <-time.After(pause):
		return nil
	case <-calls.Done():
		return calls.Err()
	}
}
