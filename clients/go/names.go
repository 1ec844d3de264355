package packhorse

import (
	"fmt"
	"net/url"
	"strings"
)

// NoName refuses a request whose path has an empty segment, "." or "..": it would name another
// resource on its way. Nothing was sent.
type NoName struct{ Path string }

func (e NoName) Error() string {
	return fmt.Sprintf(`%q is no path of a resource: a name is empty, "." or ".."`, e.Path)
}

func checkNames(asked *url.URL) error {
	path := asked.EscapedPath()
	if at := trees.FindStringIndex(path); at != nil && at[1] == len(path) {
		path = path[:len(path)-1] // the root of the tree
	}
	for _, segment := range strings.Split(path, "/")[1:] {
		if name, err := url.PathUnescape(segment); err != nil || name == "" || name == "." || name == ".." {
			return NoName{asked.EscapedPath()}
		}
	}
	return nil
}
