// The main calls with the client that is generated from openapi/publisher.yaml.
// Prints one line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"packhorse/client"
)

func main() {
	server, token, path, subscriber := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	settings := client.NewConfiguration()
	settings.Servers = client.ServerConfigurations{{URL: server}}
	api := client.NewAPIClient(settings)
	calls := context.WithValue(context.Background(), client.ContextAccessToken, token)

	body := client.NewDistributeBody("ADD")
	body.SetPaths([]string{path})
	accepted, _, err := api.DistributionsAPI.Distribute(calls).DistributeBody(*body).Prefer("wait=60").Execute()
	check(err)
	queues, _, err := api.QueuesAPI.ListQueues(calls).Execute()
	check(err)
	names := []string{}
	for _, queue := range queues.Queues {
		names = append(names, queue.Subscriber)
	}
	bound := client.NewClearBody()
	bound.SetUpToOffset(accepted.GetOffset())
	cleared, _, err := api.CommandsAPI.ClearQueue(calls, subscriber).ClearBody(*bound).Execute()
	check(err)
	body.SetPaths([]string{"/no/such/page"})
	_, refused, err := api.DistributionsAPI.Distribute(calls).DistributeBody(*body).Execute()
	if err == nil {
		panic("a path that is missing was accepted")
	}
	problem := err.(*client.GenericOpenAPIError).Model().(client.ProblemDocument)
	if int(problem.Status) != refused.StatusCode {
		panic(problem)
	}
	answer, err := json.Marshal(map[string]any{
		"package_id": accepted.PackageId,
		"queues":     names,
		"command_id": cleared.CommandId,
		"state":      accepted.State,
		"up_to_offset": cleared.UpToOffset - accepted.GetOffset(),
		"refused":    problem.Status,
	})
	check(err)
	fmt.Println(string(answer))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
