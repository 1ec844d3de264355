import com.fasterxml.jackson.core.json.JsonWriteFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.packhorse.client.ApiException;
import io.packhorse.client.Events;
import io.packhorse.client.PackhorseClient;
import io.packhorse.client.Retries;
import io.packhorse.client.cleanup.CleanupApi;
import io.packhorse.client.content.BlobsApi;
import io.packhorse.client.content.ContentApi;
import io.packhorse.client.content.model.NodeBody;
import io.packhorse.client.jobs.JobsApi;
import io.packhorse.client.jobs.model.JobRequest;
import io.packhorse.client.pipeline.ReportsApi;
import io.packhorse.client.publisher.CommandsApi;
import io.packhorse.client.publisher.DistributionsApi;
import io.packhorse.client.publisher.ErrorQueuesApi;
import io.packhorse.client.publisher.ProducersApi;
import io.packhorse.client.publisher.QueuesApi;
import io.packhorse.client.publisher.model.ClearBody;
import io.packhorse.client.publisher.model.DistributeBody;
import io.packhorse.client.publisher.model.ProducerNumber;
import io.packhorse.client.topology.TopologyApi;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.http.HttpClient;
import java.nio.file.Files;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;

/** Makes one call of the client for each line of JSON, and prints a line with what came of it. */
public class Runner {
  private static final ObjectMapper JSON =
      new ObjectMapper().configure(JsonWriteFeature.ESCAPE_NON_ASCII.mappedFeature(), true);
  private static final HttpClient HTTP = HttpClient.newHttpClient();

  private static Object result(JsonNode asked, PackhorseClient client)
      throws ApiException, InterruptedException {
    String path = asked.path("path").asText();
    String key = asked.path("key").asText(null);
    String subscriber = asked.path("subscriber").asText();
    switch (asked.path("call").asText()) {
      case "distribute":
        var accepted = new DistributionsApi(client).distribute(adding(path), null, key);
        return Map.of("id", accepted.getId(), "repeated", accepted.getRepeated());
      case "queues":
        var queues = new QueuesApi(client).listQueues().getQueues();
        return queues.stream().map(queue -> queue.getSubscriber()).toList();
      case "errors":
        var failed = new ArrayList<Map<String, Object>>();
        String cursor = null;
        do {
          var page = new ErrorQueuesApi(client).getErrorQueue(subscriber, null, cursor);
          for (var one : page.getEntries()) {
            failed.add(Map.of("offset", one.getOffset(), "reason", one.getReason()));
          }
          cursor = PackhorseClient.parameterIn(page.getNext(), "cursor");
        } while (cursor != null);
        return failed;
      case "clear":
        var upTo = asked.path("up_to").asLong();
        var bound = asked.has("up_to") ? new ClearBody().upToOffset(upTo) : null;
        var cleared = new CommandsApi(client).clearQueue(subscriber, null, bound);
        return Map.of(
            "command_id", cleared.getCommandId(), "up_to_offset", cleared.getUpToOffset());
      case "add_job":
        var job = new JobRequest().topic(asked.path("topic").asText()).properties(Map.of("size", 3));
        var added = new JobsApi(client).addJob(job, key);
        return Map.of("number", added.getJob().getNumber(), "verdict", added.getVerdict());
      case "job":
        var found = new JobsApi(client).getJob(asked.path("number").asLong(), null);
        return Map.of(
            "number", found.getNumber(),
            "state", found.getState(),
            "size", found.getProperties().get("size"));
      case "remove_job":
        new JobsApi(client).removeJob(asked.path("number").asLong(), null, null);
        return null;
      case "produce":
        return produced(asked, client);
      case "put_node":
        var page = new NodeBody().type("page").properties(Map.of("title", "One"));
        var isNew = asked.has("create") ? "*" : null;
        var written = new ContentApi(client).putNode(path.substring(1), page, null, isNew);
        return Map.of("path", written.getPath());
      case "node":
        var node = new ContentApi(client).getNode(path.substring(1), null);
        var title = node.getProperties().get("title");
        return Map.of("path", node.getPath(), "type", node.getType(), "title", title);
      case "blob":
        var blobs = new BlobsApi(client);
        blobs.putBlob(asked.path("name").asText(), new File(path));
        return digest(blobs.getBlob(asked.path("name").asText(), null, null, null, null));
      case "download":
        var name = asked.path("name").asText();
        return digest(new BlobsApi(client).getBlob(name, null, null, null, null));
      case "events":
        return events(asked, client);
      case "document":
        return new ReportsApi(client).getDeliveryDocument(null, null, null, null, null);
      case "run":
        return new CleanupApi(client).getCleanupRun(asked.path("number").asLong(), null, null).getId();
      case "topology":
        var all = new TopologyApi(client).getTopology(null);
        var sizes = all.getClusters().stream().map(one -> one.getInstances().size()).toList();
        return Map.of("current", all.getCurrent(), "instances", sizes);
      default:
        throw new IllegalArgumentException(asked.toString());
    }
  }

  private static Object events(JsonNode asked, PackhorseClient client)
      throws ApiException, InterruptedException {
    var silence = Duration.ofMillis((long) (1000 * asked.path("silence").asDouble(45)));
    var found = new ArrayList<Map<String, Object>>();
    try (Events events =
        client.follow(asked.path("path").asText(), asked.path("after").asText(), silence)) {
      while (found.size() < asked.path("count").asInt()) {
        var one = events.next();
        found.add(
            Map.of("kind", one.kind(), "id", one.id(), "data", one.data(), "gap", one.isGap()));
        if (asked.has("closed")) {
          new Thread(events::close).start();
        }
        if (found.size() < asked.path("count").asInt()) {
          Thread.sleep((long) (1000 * asked.path("working").asDouble()));
        }
      }
    }
    return found;
  }

  private static String digest(File file) {
    try {
      var found = MessageDigest.getInstance("SHA-256").digest(Files.readAllBytes(file.toPath()));
      return HexFormat.of().formatHex(found);
    } catch (IOException | NoSuchAlgorithmException error) {
      throw new IllegalStateException(error);
    }
  }

  private static DistributeBody adding(String path) {
    return new DistributeBody().action(DistributeBody.ActionEnum.ADD).paths(List.of(path));
  }

  private static Object produced(JsonNode asked, PackhorseClient client) throws ApiException {
    String name = asked.path("name").asText();
    var registered = new ProducersApi(client).registerProducer(name);
    Long last = registered.getLastSequence();
    var repeated = new ArrayList<Boolean>();
    for (JsonNode sequence : asked.path("sequences")) {
      if (last != null && sequence.asLong() <= last) {
        continue;
      }
      var number = new ProducerNumber().name(name).epoch(registered.getEpoch());
      var body = adding(asked.path("path").asText()).producer(number.sequence(sequence.asLong()));
      try {
        repeated.add(new DistributionsApi(client).distribute(body, null, null).getRepeated());
      } catch (ApiException refused) {
        if (!PackhorseClient.kindOf(refused).equals("sequence-passed")) {
          throw refused;
        }
        repeated.add(true);
      }
    }
    return repeated;
  }

  private static Map<String, Object> answered(JsonNode asked) throws InterruptedException {
    var pauses = new ArrayList<Double>();
    double patience = asked.path("patience").asDouble();
    var retries =
        new Retries(
            patience < 0 ? Double.POSITIVE_INFINITY : patience,
            asked.path("repeatable").asBoolean(),
            pauses::add,
            Duration.ofMillis((long) (1000 * asked.path("timeout").asDouble(90))));
    String token = asked.path("token").asText();
    var client = new PackhorseClient(asked.path("url").asText(), token, retries, HTTP);
    client.setRequestInterceptor(request -> request.header("X-Request-Id", "1"));
    var answer = new HashMap<String, Object>(Map.of("pauses", pauses));
    try {
      answer.put("result", result(asked, client));
    } catch (ApiException error) {
      var kind = PackhorseClient.kindOf(error);
      answer.put(
          "error", Map.of("status", error.getCode(), "kind", kind, "said", error.toString()));
    } catch (IllegalArgumentException refused) {
      answer.put("error", Map.of("status", 0, "kind", "", "said", refused.toString()));
    }
    return answer;
  }

  public static void main(String[] arguments) throws Exception {
    var lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      System.out.println(JSON.writeValueAsString(answered(JSON.readTree(line))));
    }
  }
}
