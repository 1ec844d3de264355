package io.packhorse.client;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.TextNode;
import java.io.BufferedReader;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.StringJoiner;

/**
 * Follows a stream of server-sent events. A connection that is lost is opened again for ever, behind
 * the last event; the first one is tried as {@link Retries} say.
 */
public final class Events implements AutoCloseable {
  private static final double LONGEST_PAUSE = 30;
  private static final ObjectMapper JSON = ApiClient.createDefaultObjectMapper();

  private final HttpClient http;
  private final HttpRequest request;
  private final Retries retries;
  private String lastId;
  private volatile InputStream body;
  private BufferedReader lines;
  private volatile boolean isClosed;
  private boolean isConnected;
  private double retry = 1;
  private int losses;

  /**
   * Something that happened.
   *
   * @param id goes on behind it
   * @param data the text where it is no JSON
   */
  public record Event(String kind, String id, JsonNode data) {
    /** Returns whether it stands for events that nobody can show any more; later ones follow. */
    public boolean isGap() {
      return kind.equals("gap");
    }
  }

  Events(HttpClient http, HttpRequest request, Retries retries, String after) {
    this.http = http;
    this.request = request;
    this.retries = retries;
    this.lastId = after;
  }

  /**
   * Waits for the next event; an exception is for good: a refusal, nobody at the first try, or that
   * it is closed.
   */
  public Event next() throws ApiException, InterruptedException {
    while (!isClosed) {
      try {
        if (body == null) {
          open();
        }
        Event event = block();
        if (event != null) {
          return event;
        }
      } catch (IOException lost) {
        if (!isConnected) {
          throw new ApiException(lost);
        }
        pause();
      }
    }
    drop();
    throw new ApiException("the stream is closed");
  }

  /**
   * Ends the connection, and what waits on it for the next event, in whatever thread. A try to
   * connect, or a pause before one, ends by itself.
   */
  @Override
  public void close() {
    isClosed = true;
    drop();
  }

  private void drop() {
    InputStream open = body;
    body = null;
    closed(open);
  }

  private void open() throws ApiException, IOException, InterruptedException {
    HttpRequest.Builder asked = HttpRequest.newBuilder(request, (name, value) -> true);
    if (!lastId.isEmpty()) {
      asked.setHeader("Last-Event-ID", lastId);
    }
    HttpResponse<InputStream> answer = http.send(asked.build(), BodyHandlers.ofInputStream());
    int status = answer.statusCode();
    if (status == 200 && !isStream(answer)) {
      answer.body().close();
      throw new IOException("the answer is no stream of events");
    }
    if (status != 200) {
      String document = new String(answer.body().readAllBytes(), UTF_8);
      if (!isConnected || status < 500 && status != 429) {
        String said = "no events are shown: " + status + " " + document;
        throw new ApiException(status, said, answer.headers(), document);
      }
      throw new IOException(document);
    }
    isConnected = true;
    InputStream opened = answer.body();
    body = opened;
    if (isClosed) {
      throw new IOException("it was closed meanwhile");
    }
    lines = new BufferedReader(new InputStreamReader(opened, UTF_8));
  }

  private static boolean isStream(HttpResponse<?> answer) {
    String type = answer.headers().firstValue("Content-Type").orElse("");
    return type.startsWith("text/event-stream");
  }

  private static void closed(InputStream open) {
    try {
      if (open != null) {
        open.close();
      }
    } catch (IOException lost) {
      // it is closed
    }
  }

  private void pause() throws InterruptedException {
    drop();
    if (isClosed) {
      return;
    }
    retries.pause().of(Math.min(LONGEST_PAUSE, retry * Math.pow(2, losses)));
    losses++;
  }

  /** Reads up to an empty line; returns null for what only says how far the stream is. */
  private Event block() throws IOException {
    String kind = "";
    String id = "";
    StringJoiner data = new StringJoiner("\n").setEmptyValue("");
    boolean isEmpty = true;
    boolean hasData = false;
    for (String line = line(); !line.isEmpty() || isEmpty; line = line()) {
      String[] parts = line.split(": ?", 2);
      String value = parts.length > 1 ? parts[1] : "";
      isEmpty &= parts[0].isEmpty();
      switch (parts[0]) {
        case "event" -> kind = value;
        case "id" -> id = value;
        case "retry" -> retry = value.matches("[1-9]\\d{0,8}") ? Integer.parseInt(value) / 1e3 : retry;
        case "data" -> {
          data.add(value);
          hasData = true;
        }
        default -> {}
      }
    }
    losses = 0;
    lastId = id.isEmpty() ? lastId : id;
    return hasData ? new Event(kind, lastId, json(data.toString())) : null;
  }

  private String line() throws IOException {
    String line = lines.readLine();
    if (line == null) {
      throw new EOFException("what is not complete is sent again");
    }
    return line;
  }

  private static JsonNode json(String text) {
    try {
      return JSON.readTree(text);
    } catch (IOException noJson) {
      return TextNode.valueOf(text);
    }
  }
}
