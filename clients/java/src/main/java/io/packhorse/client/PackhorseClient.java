package io.packhorse.client;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.net.http.HttpClient;

/** One service at its URL: what the constructor of each API takes. */
public class PackhorseClient extends ApiClient {
  private final HttpClient http;

  /** Sends again for a minute; no token is sent where it is null. */
  public PackhorseClient(String url, String token) {
    this(url, token, new Retries());
  }

  /** Sends again as {@code retries} says. */
  public PackhorseClient(String url, String token, Retries retries) {
    updateBaseUri(url);
    if (token != null) {
      setRequestInterceptor(request -> request.header("Authorization", "Bearer " + token));
    }
    http = new RetryingHttp(HttpClient.newHttpClient(), retries);
  }

  @Override
  public HttpClient getHttpClient() {
    return http;
  }

  /** Returns what a refusal says, for example "queue-full"; empty where nobody answered. */
  public static String kindOf(ApiException refused) {
    if (refused.getResponseBody() == null) {
      return "";
    }
    try {
      JsonNode problem = createDefaultObjectMapper().readTree(refused.getResponseBody());
      String type = problem.path("type").asText();
      return type.substring(type.lastIndexOf('/') + 1);
    } catch (IOException noJson) {
      return "";
    }
  }
}
