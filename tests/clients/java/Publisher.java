import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.List;
import java.util.Map;
import org.openapitools.client.ApiClient;
import org.openapitools.client.ApiException;
import org.openapitools.client.api.CommandsApi;
import org.openapitools.client.api.DistributionsApi;
import org.openapitools.client.api.QueuesApi;
import org.openapitools.client.model.ClearBody;
import org.openapitools.client.model.DistributeBody;
import org.openapitools.client.model.ProblemDocument;

/** The main calls with the client that is generated from openapi/publisher.yaml. */
public class Publisher {
  public static void main(String[] arguments) throws Exception {
    var api = new ApiClient();
    api.updateBaseUri(arguments[0]);
    api.setRequestInterceptor(r -> r.header("Authorization", "Bearer " + arguments[1]));
    var distributions = new DistributionsApi(api);
    var body = new DistributeBody().action(DistributeBody.ActionEnum.ADD).paths(List.of(arguments[2]));
    var accepted = distributions.distribute(body, "wait=60", null);
    var queues = new QueuesApi(api).listQueues();
    var bound = new ClearBody().upToOffset(accepted.getOffset());
    var cleared = new CommandsApi(api).clearQueue(arguments[3], null, bound);
    body.setPaths(List.of("/no/such/page"));
    ProblemDocument problem;
    try {
      distributions.distribute(body, null, null);
      throw new IllegalStateException("a path that is missing was accepted");
    } catch (ApiException error) {
      problem = api.getObjectMapper().readValue(error.getResponseBody(), ProblemDocument.class);
    }
    var answer = Map.of(
        "package_id", accepted.getPackageId(),
        "queues", queues.getQueues().stream().map(q -> q.getSubscriber()).toList(),
        "command_id", cleared.getCommandId(),
        "state", accepted.getState().getValue(),
        "up_to_offset", cleared.getUpToOffset() - accepted.getOffset(),
        "refused", problem.getStatus());
    System.out.println(new ObjectMapper().writeValueAsString(answer));
  }
}
