package packhorse

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// download is the body of a binary: where its connection is lost, what is missing is asked for.
type download struct {
	retries Retries
	request *http.Request
	etag    string
	body    io.ReadCloser
	at      int64
	began   time.Time // of the first loss since the last byte
	tries   int
}

// resumed goes on behind lost connections where the answer is one binary as a whole.
func (r Retries) resumed(request *http.Request, answer *http.Response) *http.Response {
	etag := answer.Header.Get("ETag")
	isWhole := request.Method == http.MethodGet && request.Header.Get("Range") == "" &&
		answer.StatusCode == http.StatusOK && answer.Header.Get("Accept-Ranges") == "bytes" && strings.HasPrefix(etag, `"`) &&
		!answer.Uncompressed && answer.Header.Get("Content-Encoding") == ""
	if isWhole {
		answer.Body = &download{retries: r, request: request, etag: etag, body: answer.Body}
	}
	return answer
}

func (d *download) Read(into []byte) (int, error) {
	for {
		count, err := d.body.Read(into)
		d.at += int64(count)
		if count > 0 {
			d.tries, d.began = 0, time.Time{}
			return count, nil // an error comes again with the next call
		}
		if err == nil || err == io.EOF {
			return 0, err
		}
		if !d.goesOn() {
			return 0, err
		}
	}
}

func (d *download) Close() error {
	return d.body.Close()
}

// goesOn asks for what is missing, if it is of the same binary still.
func (d *download) goesOn() bool {
	if d.began.IsZero() {
		d.began = time.Now()
	}
	pause := pauseAfter(nil, d.tries)
	d.tries++
	calls := d.request.Context()
	if time.Since(d.began) > d.retries.patience()-pause || d.retries.sleep(calls, pause) != nil {
		return false
	}
	rest := d.request.Clone(calls)
	rest.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.at))
	rest.Header.Set("If-Range", d.etag)
	answer, err := d.retries.RoundTrip(rest)
	if err != nil {
		return false
	}
	isRest := answer.StatusCode == http.StatusPartialContent && answer.Header.Get("ETag") == d.etag &&
		strings.HasPrefix(answer.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", d.at))
	if !isRest {
		_ = answer.Body.Close()
		return false
	}
	_ = d.body.Close()
	d.body = answer.Body
	return true
}
