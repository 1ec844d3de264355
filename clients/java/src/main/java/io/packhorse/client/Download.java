package io.packhorse.client;

import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;

/** The body of a binary: where its connection is lost, what is missing is asked for. */
final class Download extends InputStream {
  private final RetryingHttp http;
  private final Retries retries;
  private final HttpRequest request;
  private final String etag;
  private InputStream body;
  private long at;
  private long began; // of the first loss since the last byte
  private int tries;

  private Download(
      RetryingHttp http, Retries retries, HttpRequest request, String etag, InputStream body) {
    this.http = http;
    this.retries = retries;
    this.request = request;
    this.etag = etag;
    this.body = body;
  }

  /** Returns the stream of an answer; it goes on behind lost connections if it is one binary. */
  static InputStream of(
      RetryingHttp http, Retries retries, HttpResponse<?> answer, InputStream body) {
    String etag = header(answer, "ETag");
    boolean isWhole =
        answer.request().method().equals("GET")
            && answer.request().headers().firstValue("Range").isEmpty()
            && answer.statusCode() == 200
            && header(answer, "Accept-Ranges").equals("bytes")
            && etag.startsWith("\"")
            && header(answer, "Content-Encoding").isEmpty();
    return isWhole ? new Download(http, retries, answer.request(), etag, body) : body;
  }

  @Override
  public int read() throws IOException {
    byte[] one = new byte[1];
    return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
  }

  @Override
  public int read(byte[] into, int from, int length) throws IOException {
    while (true) {
      try {
        int count = body.read(into, from, length);
        at += Math.max(0, count);
        tries = 0;
        return count;
      } catch (IOException lost) {
        if (!goesOn()) {
          throw lost;
        }
      }
    }
  }

  @Override
  public void close() throws IOException {
    body.close();
  }

  /** Asks for what is missing, if it is of the same binary still. */
  private boolean goesOn() throws IOException {
    began = tries == 0 ? System.nanoTime() : began;
    double wait = RetryingHttp.pauseAfter(null, tries++);
    if ((System.nanoTime() - began) / 1e9 + wait > retries.patience()) {
      return false;
    }
    HttpResponse<InputStream> answer;
    try {
      retries.pause().of(wait);
      HttpRequest.Builder rest = HttpRequest.newBuilder(request, (name, value) -> true);
      rest.setHeader("Range", "bytes=" + at + "-").setHeader("If-Range", etag);
      answer = http.send(rest.build(), BodyHandlers.ofInputStream());
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException();
    }
    body.close();
    body = answer.body();
    boolean isRest =
        answer.statusCode() == 206
            && header(answer, "ETag").equals(etag)
            && header(answer, "Content-Range").startsWith("bytes " + at + "-");
    if (!isRest) {
      body.close();
    }
    return isRest;
  }

  private static String header(HttpResponse<?> answer, String name) {
    return answer.headers().firstValue(name).orElse("");
  }
}
