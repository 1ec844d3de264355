// Makes one call of the client for each line of JSON, and prints a line with what came of it.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	packhorse "packhorse.io/clients/go"
	"packhorse.io/clients/go/cleanup"
	"packhorse.io/clients/go/content"
	"packhorse.io/clients/go/jobs"
	"packhorse.io/clients/go/publisher"
	"packhorse.io/clients/go/topology"
)

type asked struct {
	Call, Url, Token, Path, Key, Subscriber, Topic, Name string
	After                                                string
	Patience, Silence, Timeout, Working                  float64
	Ends                                                 float64 // after so many seconds; pauses are real
	Count                                                int
	Repeatable, Create, Closed                           bool
	UpTo                                                 *int64 `json:"up_to"`
	Number                                               int64
	Sequences                                            []int64
}

type document = map[string]any

var calls = map[string]func(context.Context, asked, packhorse.Retries) (any, error){
	"distribute": distribute, "queues": queues, "errors": failed, "clear": clearQueue,
	"add_job": addJob, "job": getJob, "remove_job": removeJob, "produce": produce,
	"put_node": putNode, "node": getNode, "topology": getTopology, "blob": throughBlob, "download": download, "events": events, "run": getRun,
}

func publisherAt(a asked, retries packhorse.Retries) *publisher.APIClient {
	settings := publisher.NewConfiguration()
	settings.Servers = publisher.ServerConfigurations{{URL: a.Url}}
	settings.HTTPClient = packhorse.HTTPClient(retries)
	return publisher.NewAPIClient(settings)
}

func distribute(c context.Context, a asked, retries packhorse.Retries) (any, error) {
	body := publisher.NewDistributeBody("ADD")
	body.SetPaths([]string{a.Path})
	request := publisherAt(a, retries).DistributionsAPI.Distribute(c).DistributeBody(*body)
	if a.Key != "" {
		request = request.IdempotencyKey(a.Key)
	}
	accepted, _, err := request.Execute()
	return document{"id": accepted.GetId(), "repeated": accepted.GetRepeated()}, err
}

func queues(c context.Context, a asked, retries packhorse.Retries) (any, error) {
	found, _, err := publisherAt(a, retries).QueuesAPI.ListQueues(c).Execute()
	names := []string{}
	for _, queue := range found.GetQueues() {
		names = append(names, queue.Subscriber)
	}
	return names, err
}

func failed(c context.Context, a asked, retries packhorse.Retries) (any, error) {
	request := publisherAt(a, retries).ErrorQueuesAPI.GetErrorQueue(c, a.Subscriber)
	entries := []document{}
	for {
		page, _, err := request.Execute()
		for _, entry := range page.GetEntries() {
			entries = append(entries, document{"offset": entry.Offset, "reason": entry.Reason})
		}
		next, _ := url.Parse(page.GetNext())
		if err != nil || page.GetNext() == "" {
			return entries, err
		}
		request = request.Cursor(next.Query().Get("cursor"))
	}
}

func clearQueue(c context.Context, a asked, retries packhorse.Retries) (any, error) {
	request := publisherAt(a, retries).CommandsAPI.ClearQueue(c, a.Subscriber)
	if a.UpTo != nil {
		body := publisher.NewClearBody()
		body.SetUpToOffset(*a.UpTo)
		request = request.ClearBody(*body)
	}
	cleared, _, err := request.Execute()
	return document{"command_id": cleared.GetCommandId(), "up_to_offset": cleared.GetUpToOffset()}, err
}

func produce(c context.Context, a asked, retries packhorse.Retries) (any, error) {
	client := publisherAt(a, retries)
	registered, _, err := client.ProducersAPI.RegisterProducer(c, a.Name).Execute()
	if err != nil {
		return nil, err
	}
	last := int64(-1)
	if known := registered.LastSequence.Get(); known != nil {
		last = *known
	}
	repeated := []bool{}
	for _, sequence := range a.Sequences {
		if sequence <= last {
			continue
		}
		body := publisher.NewDistributeBody("ADD")
		body.SetPaths([]string{a.Path})
		body.SetProducer(*publisher.NewProducerNumber(a.Name, registered.Epoch, sequence))
		accepted, _, err := client.DistributionsAPI.Distribute(c).DistributeBody(*body).Execute()
		if problem, _ := packhorse.ProblemOf(err); err != nil && problem.Kind != "sequence-passed" {
			return nil, err
		}
		repeated = append(repeated, err != nil || accepted.Repeated)
	}
	return repeated, nil
}

func jobsAt(a asked, retries packhorse.Retries) *jobs.APIClient {
	settings := jobs.NewConfiguration()
	settings.Servers = jobs.ServerConfigurations{{URL: a.Url}}
	settings.HTTPClient = packhorse.HTTPClient(retries)
	return jobs.NewAPIClient(settings)
}

func addJob(c context.Context, a asked, retries packhorse.Retries) (any, error) {
	body := jobs.NewJobRequest(a.Topic)
	body.SetProperties(document{"size": 3})
	request := jobsAt(a, retries).JobsAPI.AddJob(c).JobRequest(*body)
	if a.Key != "" {
		request = request.IdempotencyKey(a.Key)
	}
	added, _, err := request.Execute()
	job := added.GetJob()
	return document{"number": job.Number, "verdict": added.GetVerdict()}, err
}

func getJob(c context.Context, a asked, retries packhorse.Retries) (any, error) {
	job, _, err := jobsAt(a, retries).JobsAPI.GetJob(c, a.Number).Execute()
	size := job.GetProperties()["size"]
	return document{"number": job.GetNumber(), "state": job.GetState(), "size": size}, err
}

func removeJob(c context.Context, a asked, retries packhorse.Retries) (any, error) {
	_, err := jobsAt(a, retries).JobsAPI.RemoveJob(c, a.Number).Execute()
	return nil, err
}

func contentAt(a asked, retries packhorse.Retries) *content.APIClient {
	settings := content.NewConfiguration()
	settings.Servers = content.ServerConfigurations{{URL: a.Url}}
	settings.HTTPClient = packhorse.HTTPClient(retries)
	return content.NewAPIClient(settings)
}

func putNode(c context.Context, a asked, retries packhorse.Retries) (any, error) {
	body := content.NewNodeBody("page")
	body.SetProperties(document{"title": "One"})
	request := contentAt(a, retries).ContentAPI.PutNode(c, strings.TrimPrefix(a.Path, "/"))
	if a.Create {
		request = request.IfNoneMatch("*")
	}
	written, _, err := request.NodeBody(*body).Execute()
	return document{"path": written.GetPath()}, err
}

func getNode(c context.Context, a asked, retries packhorse.Retries) (any, error) {
	nodes := contentAt(a, retries).ContentAPI
	node, _, err := nodes.GetNode(c, strings.TrimPrefix(a.Path, "/")).Execute()
	title := node.GetProperties()["title"]
	return document{"path": node.GetPath(), "type": node.GetType(), "title": title}, err
}

func throughBlob(c context.Context, a asked, retries packhorse.Retries) (any, error) {
	file, err := os.Open(a.Path)
	check(err)
	blobs := contentAt(a, retries).BlobsAPI
	if _, _, err := blobs.PutBlob(c, a.Name).Body(file).Execute(); err != nil {
		return nil, err
	}
	return download(c, a, retries)
}

func download(c context.Context, a asked, retries packhorse.Retries) (any, error) {
	got, _, err := contentAt(a, retries).BlobsAPI.GetBlob(c, a.Name).Execute()
	if err != nil {
		return nil, err
	}
	found := sha256.New()
	_, err = io.Copy(found, got)
	return hex.EncodeToString(found.Sum(nil)), err
}

func events(c context.Context, a asked, retries packhorse.Retries) (any, error) {
	followed := packhorse.Follow(c, a.Url+a.Path, a.Token, a.After, retries)
	if a.Silence > 0 {
		followed.Silence = seconds(a.Silence)
	}
	defer followed.Close()
	found := []document{}
	for len(found) < a.Count {
		event, err := followed.Next()
		if err != nil {
			return nil, err
		}
		one := document{"kind": event.Kind, "id": event.ID, "data": event.Data, "gap": event.IsGap()}
		found = append(found, one)
		if a.Closed {
			go followed.Close()
		}
		if len(found) < a.Count {
			time.Sleep(seconds(a.Working))
		}
	}
	return found, nil
}

func getTopology(c context.Context, a asked, retries packhorse.Retries) (any, error) {
	settings := topology.NewConfiguration()
	settings.Servers = topology.ServerConfigurations{{URL: a.Url}}
	settings.HTTPClient = packhorse.HTTPClient(retries)
	found, _, err := topology.NewAPIClient(settings).TopologyAPI.GetTopology(c).Execute()
	counts := []int{}
	for _, cluster := range found.GetClusters() {
		counts = append(counts, len(cluster.Instances))
	}
	return document{"current": found.GetCurrent(), "instances": counts}, err
}

func getRun(c context.Context, a asked, retries packhorse.Retries) (any, error) {
	settings := cleanup.NewConfiguration()
	settings.Servers = cleanup.ServerConfigurations{{URL: a.Url}}
	settings.HTTPClient = packhorse.HTTPClient(retries)
	run, _, err := cleanup.NewAPIClient(settings).CleanupAPI.GetCleanupRun(c, a.Number).Execute()
	return run.GetId(), err
}

func answered(a asked) document {
	pauses := []float64{}
	patience := seconds(a.Patience)
	if a.Patience == 0 {
		patience = packhorse.Never
	} else if a.Patience < 0 {
		patience = packhorse.Forever
	}
	retries := packhorse.Retries{
		Patience:   patience,
		Repeatable: a.Repeatable,
		Timeout:    seconds(a.Timeout),
		Sleep: func(_ context.Context, pause time.Duration) error {
			pauses = append(pauses, pause.Seconds())
			return nil
		},
	}
	// The key of every service's package is one of its own.
	calling := context.Background()
	if a.Ends > 0 {
		ending, end := context.WithTimeout(calling, seconds(a.Ends))
		defer end()
		calling, retries.Sleep = ending, nil
	}
	calling = context.WithValue(calling, publisher.ContextAccessToken, a.Token)
	calling = context.WithValue(calling, content.ContextAccessToken, a.Token)
	calling = context.WithValue(calling, jobs.ContextAccessToken, a.Token)
	calling = context.WithValue(calling, topology.ContextAccessToken, a.Token)
	result, err := calls[a.Call](calling, a, retries)
	if err == nil {
		return document{"result": result, "pauses": pauses}
	}
	problem, _ := packhorse.ProblemOf(err)
	told := document{"status": problem.Status, "kind": problem.Kind, "said": err.Error()}
	return document{"error": told, "pauses": pauses}
}

func seconds(count float64) time.Duration {
	return time.Duration(count * float64(time.Second))
}

func main() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var a asked
		check(json.Unmarshal(lines.Bytes(), &a))
		answer, err := json.Marshal(answered(a))
		check(err)
		fmt.Println(string(answer))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
