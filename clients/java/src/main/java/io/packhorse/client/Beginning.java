package io.packhorse.client;

import java.io.ByteArrayOutputStream;
import java.net.http.HttpResponse.BodySubscriber;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.Flow.Subscription;

/** The first mebibyte of a body; what is behind it is not read. */
final class Beginning implements BodySubscriber<byte[]> {
  private static final int LONGEST = 1 << 20;

  private final CompletableFuture<byte[]> body = new CompletableFuture<>();
  private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
  private Subscription subscription;

  @Override
  public CompletionStage<byte[]> getBody() {
    return body;
  }

  @Override
  public void onSubscribe(Subscription subscription) {
    this.subscription = subscription;
    subscription.request(Long.MAX_VALUE);
  }

  @Override
  public void onNext(List<ByteBuffer> parts) {
    for (ByteBuffer part : parts) {
      byte[] taken = new byte[Math.min(part.remaining(), LONGEST - bytes.size())];
      part.get(taken);
      bytes.writeBytes(taken);
    }
    if (bytes.size() == LONGEST) {
      onComplete();
      subscription.cancel(); // of HTTP/2 it fails what has not completed
    }
  }

  @Override
  public void onError(Throwable lost) {
    body.completeExceptionally(lost);
  }

  @Override
  public void onComplete() {
    body.complete(bytes.toByteArray());
  }
}
