package io.packhorse.client;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.IOException;
import java.io.InputStream;
import java.net.Authenticator;
import java.net.ConnectException;
import java.net.CookieHandler;
import java.net.ProxySelector;
import java.net.URI;
import java.net.URLDecoder;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpHeaders;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandler;
import java.net.http.HttpResponse.BodySubscriber;
import java.net.http.HttpResponse.BodySubscribers;
import java.net.http.HttpResponse.PushPromiseHandler;
import java.net.http.HttpResponse.ResponseInfo;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;

/**
 * Sends a request again, under one Idempotency-Key, while the service is full (429) or away (502,
 * 503, 504) or its answer is lost, and waits as Retry-After says.
 */
final class RetryingHttp extends HttpClient {
  private static final Set<Integer> AWAY = Set.of(408, 502, 503, 504);
  private static final int FULL = 429;

  /** Its first DELETE ends a job that waits, and a second one forgets it. */
  private static final Pattern JOB = Pattern.compile("^(?!.*/content/).*/jobs/\\d+$");

  private final HttpClient http;
  private final Retries retries;

  RetryingHttp(HttpClient http, Retries retries) {
    this.http = http;
    this.retries = retries;
  }

  @Override
  public <T> HttpResponse<T> send(HttpRequest asked, BodyHandler<T> handler)
      throws IOException, InterruptedException {
    HttpRequest request = prepared(asked);
    checkNames(request.uri().getRawPath());
    boolean twice = retries.repeatable() || mayArriveTwice(request);
    long began = 0;
    for (int tries = 0; ; tries++) {
      Whole<T> whole = new Whole<>(handler, request.timeout().orElse(retries.timeout()));
      HttpResponse<T> answer = null;
      IOException lost = null;
      try {
        answer = http.send(request, whole);
      } catch (IOException error) {
        lost = error;
      }
      began = tries == 0 ? System.nanoTime() : began;
      double wait = pauseAfter(answer, tries);
      boolean again = answer == null ? isSentAgain(lost, twice) : isSentAgain(answer, whole, twice);
      if (!again || (System.nanoTime() - began) / 1e9 + wait > retries.patience()) {
        if (answer == null) {
          throw lost;
        }
        return resumed(answer);
      }
      retries.pause().of(wait);
    }
  }

  /** What takes a stream reads on behind lost connections. */
  @SuppressWarnings("unchecked")
  private <T> HttpResponse<T> resumed(HttpResponse<T> answer) {
    if (!(answer.body() instanceof InputStream stream)) {
      return answer;
    }
    return new Answer<>(answer, (T) Download.of(this, retries, answer, stream));
  }

  /** A name that is empty, "." or ".." would name another resource on its way. */
  private static void checkNames(String path) {
    Matcher tree = Routes.TREES.matcher(path);
    boolean isRoot = tree.find() && tree.end() == path.length();
    String names = isRoot ? path.substring(0, path.length() - 1) : path;
    for (String name : names.substring(Math.min(1, names.length())).split("/", -1)) {
      if (Set.of("", ".", "..").contains(URLDecoder.decode(name.replace("+", "%2B"), UTF_8))
          && !names.isEmpty()) {
        throw new IllegalArgumentException(
            path + " is no path of a resource: a name is empty, \".\" or \"..\"");
      }
    }
  }

  private HttpRequest prepared(HttpRequest asked) {
    HttpRequest.Builder request = HttpRequest.newBuilder(asked, (name, value) -> true);
    if (Routes.TREES.matcher(asked.uri().getRawPath()).find()) {
      String[] parts = asked.uri().toString().split("\\?", 2); // a name holds no slash
      parts[0] = parts[0].replace("%2F", "/");
      request.uri(URI.create(String.join("?", parts)));
    }
    boolean takesKey =
        asked.method().equals("POST") && Routes.KEYED.matcher(asked.uri().getPath()).find();
    if (takesKey && !retries.repeatable() && !has(asked, "Idempotency-Key")) {
      request.header("Idempotency-Key", UUID.randomUUID().toString());
    }
    if (asked.timeout().isEmpty() && isJson(asked.headers())) {
      request.timeout(retries.timeout());
    }
    return request.build();
  }

  private static boolean isJson(HttpHeaders headers) {
    return headers.firstValue("Content-Type").orElse("json").contains("json");
  }

  private static boolean mayArriveTwice(HttpRequest request) {
    if (has(request, "Idempotency-Key")) {
      return true;
    }
    if (request.method().equals("DELETE") && JOB.matcher(request.uri().getPath()).find()) {
      return false;
    }
    return switch (request.method()) {
      case "GET", "HEAD" -> true;
      // a second try may not meet the condition that the first one has met
      case "PUT", "DELETE" -> !has(request, "If-Match") && !has(request, "If-None-Match");
      default -> false;
    };
  }

  private static boolean has(HttpRequest request, String header) {
    return request.headers().firstValue(header).isPresent();
  }

  private static boolean isSentAgain(IOException lost, boolean twice) {
    return twice || lost instanceof ConnectException || lost instanceof HttpConnectTimeoutException;
  }

  private static boolean isSentAgain(HttpResponse<?> answer, Whole<?> whole, boolean twice) {
    int status = answer.statusCode();
    // of a conflict: an earlier try has not ended, its answer will be the same
    return status == FULL
        || AWAY.contains(status) && twice
        || status == 409 && whole.text.contains("/key-in-progress");
  }

  static double pauseAfter(HttpResponse<?> answer, int tries) {
    if (answer != null) {
      String asked = answer.headers().firstValue("Retry-After").orElse("");
      if (asked.matches("\\d{1,9}")) {
        return Integer.parseInt(asked);
      }
    }
    return Math.min(10, 0.1 * Math.pow(2, tries)) * (1 + Math.random()) / 2;
  }

  /**
   * Reads an answer of JSON, or a refusal, as a whole before anybody gets it: a cut in its middle is
   * found, and the connection is free for the next try. A binary of JSON is none.
   */
  private static final class Whole<T> implements BodyHandler<T> {
    private final BodyHandler<T> handler;
    private final Duration limit;
    private String text = "";

    Whole(BodyHandler<T> handler, Duration limit) {
      this.handler = handler;
      this.limit = limit;
    }

    @Override
    public BodySubscriber<T> apply(ResponseInfo info) {
      if (info.statusCode() < 400 && !isWhole(info.headers())) {
        return new Timely<>(handler.apply(info), limit);
      }
      BodySubscriber<byte[]> whole =
          info.statusCode() < 400 ? BodySubscribers.ofByteArray() : new Beginning();
      return new Timely<>(BodySubscribers.mapping(whole, body -> read(info, body)), limit);
    }

    private static boolean isWhole(HttpHeaders headers) {
      return isJson(headers) && !headers.firstValue("Accept-Ranges").orElse("").equals("bytes");
    }

    private T read(ResponseInfo info, byte[] body) {
      text = new String(body, UTF_8);
      BodySubscriber<T> reader = handler.apply(info);
      reader.onSubscribe(
          new Flow.Subscription() {
            @Override
            public void request(long buffers) {}

            @Override
            public void cancel() {}
          });
      reader.onNext(List.of(ByteBuffer.wrap(body)));
      reader.onComplete();
      return reader.getBody().toCompletableFuture().join();
    }
  }

  @Override
  public <T> CompletableFuture<HttpResponse<T>> sendAsync(
      HttpRequest request, BodyHandler<T> handler) {
    return http.sendAsync(request, handler);
  }

  @Override
  public <T> CompletableFuture<HttpResponse<T>> sendAsync(
      HttpRequest request, BodyHandler<T> handler, PushPromiseHandler<T> pushes) {
    return http.sendAsync(request, handler, pushes);
  }

  @Override
  public Optional<CookieHandler> cookieHandler() {
    return http.cookieHandler();
  }

  @Override
  public Optional<Duration> connectTimeout() {
    return http.connectTimeout();
  }

  @Override
  public Redirect followRedirects() {
    return http.followRedirects();
  }

  @Override
  public Optional<ProxySelector> proxy() {
    return http.proxy();
  }

  @Override
  public SSLContext sslContext() {
    return http.sslContext();
  }

  @Override
  public SSLParameters sslParameters() {
    return http.sslParameters();
  }

  @Override
  public Optional<Authenticator> authenticator() {
    return http.authenticator();
  }

  @Override
  public Version version() {
    return http.version();
  }

  @Override
  public Optional<Executor> executor() {
    return http.executor();
  }
}
