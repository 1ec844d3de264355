package io.packhorse.client;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.net.http.HttpResponse.BodySubscriber;
import java.net.http.HttpTimeoutException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow.Subscription;

/** Loses a body of which nothing comes for so long while its reader wants more. */
final class Timely<T> implements BodySubscriber<T>, Subscription {
  private final BodySubscriber<T> reader;
  private final Duration limit;
  private Subscription parts;
  private CompletableFuture<Void> next = new CompletableFuture<>();
  private long wanted;
  private boolean isOver;

  Timely(BodySubscriber<T> reader, Duration limit) {
    this.reader = reader;
    this.limit = limit;
  }

  @Override
  public CompletionStage<T> getBody() {
    return reader.getBody();
  }

  @Override
  public void onSubscribe(Subscription parts) {
    this.parts = parts;
    reader.onSubscribe(this);
  }

  @Override
  public void request(long count) {
    goesOn(count);
    parts.request(count);
  }

  @Override
  public void cancel() {
    end();
    parts.cancel();
  }

  @Override
  public void onNext(List<ByteBuffer> part) {
    if (goesOn(-1)) {
      reader.onNext(part);
    }
  }

  @Override
  public void onError(Throwable lost) {
    if (end()) {
      reader.onError(lost);
    }
  }

  @Override
  public void onComplete() {
    if (end()) {
      reader.onComplete();
    }
  }

  /** Returns whether it goes on; what comes next has its time from now on. */
  private synchronized boolean goesOn(long more) {
    wanted = more > Long.MAX_VALUE - wanted ? Long.MAX_VALUE : wanted + more;
    next.complete(null);
    if (wanted > 0 && !isOver) {
      next = new CompletableFuture<>();
      next.orTimeout(limit.toMillis(), MILLISECONDS)
          .whenComplete(
              (none, late) -> {
                if (late != null) {
                  onError(new HttpTimeoutException("the answer does not go on"));
                  parts.cancel();
                }
              });
    }
    return !isOver;
  }

  /** Returns whether it has not been over. */
  private synchronized boolean end() {
    boolean isFirst = !isOver;
    isOver = true;
    next.complete(null);
    return isFirst;
  }
}
