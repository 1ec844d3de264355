package io.packhorse.client;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.net.URI;
import java.net.URLDecoder;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.time.Duration;
import java.util.function.Consumer;
import java.util.stream.Stream;

/** One service at its URL: what the constructor of each API takes. */
public class PackhorseClient extends ApiClient {
  private static final Duration SILENCE = Duration.ofSeconds(45); // there is a word every 15
  private static final Duration CONNECT = Duration.ofSeconds(10);

  private final String token;
  private final HttpClient http;
  private final Retries retries;

  /** Sends again for a minute; no token is sent where it is null. */
  public PackhorseClient(String url, String token) {
    this(url, token, new Retries());
  }

  /** Sends again as {@code retries} says. */
  public PackhorseClient(String url, String token, Retries retries) {
    this(url, token, retries, HttpClient.newBuilder().connectTimeout(CONNECT).build());
  }

  /** Sends by a client of your own: with its proxy, its certificates, its time to connect. */
  public PackhorseClient(String url, String token, Retries retries, HttpClient http) {
    updateBaseUri(url.replaceAll("/+$", ""));
    this.token = token;
    this.retries = retries;
    this.http = new RetryingHttp(http, retries);
  }

  @Override
  public HttpClient getHttpClient() {
    return http;
  }

  /** Sends the token, and then what another interceptor makes of the request. */
  @Override
  public Consumer<HttpRequest.Builder> getRequestInterceptor() {
    return request -> {
      if (token != null) {
        request.header("Authorization", "Bearer " + token);
      }
      if (interceptor != null) {
        interceptor.accept(request);
      }
    };
  }

  /**
   * Follows a stream of server-sent events behind the event with the id {@code after}; "" begins
   * now. The path has the stream's query, for example {@code /events?types=package}.
   */
  public Events follow(String path, String after) {
    return follow(path, after, SILENCE);
  }

  /** Follows a stream whose connection is lost when there is no word on it for so long. */
  public Events follow(String path, String after, Duration silence) {
    HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(getBaseUri() + path));
    request.header("Accept", "text/event-stream").header("Cache-Control", "no-store");
    request.timeout(silence); // a JDK that ends the stream then opens it again
    getRequestInterceptor().accept(request);
    return new Events(http, request.build(), retries, after);
  }

  /**
   * Returns a parameter of the URL of the next page, "cursor" or "after", which a call takes; null
   * where none follows.
   */
  public static String parameterIn(String next, String name) {
    if (next == null) {
      return null;
    }
    return Stream.of(URI.create(next).getRawQuery().split("&"))
        .filter(one -> one.startsWith(name + "="))
        .map(one -> URLDecoder.decode(one.substring(name.length() + 1), UTF_8))
        .findFirst()
        .orElse(null);
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
