package io.packhorse.client;

import java.time.Duration;

/**
 * How long and how often a request is sent again.
 *
 * @param patience seconds from the first failure on; 0 for none, infinite for ever
 * @param repeatable whether every request may arrive twice: those of a producer, which are
 *     numbered, or a clear with a bound. It is sent again when its answer is lost, and gets no
 *     Idempotency-Key.
 * @param pause waits
 * @param timeout after how long an answer that does not begin, unless the request says so itself, or
 *     does not go on is lost; to a file it begins when it does
 */
public record Retries(double patience, boolean repeatable, Pause pause, Duration timeout) {
  /** Waits so many seconds. */
  public interface Pause {
    void of(double seconds) throws InterruptedException;
  }

  /** Sends again for a minute, each time after 90 s: a service may be asked to wait for 60. */
  public Retries() {
    this(
        60, false, seconds -> Thread.sleep((long) (seconds * 1000)), Duration.ofSeconds(90));
  }

  /** Returns retries for so many seconds. */
  public Retries forSeconds(double seconds) {
    return new Retries(seconds, repeatable, pause, timeout);
  }

  /** Returns retries of a client whose requests may all arrive twice. */
  public Retries ofRepeatable() {
    return new Retries(patience, true, pause, timeout);
  }

  /** Returns retries for which an answer that does not begin, or go on, in this time is lost. */
  public Retries withTimeout(Duration timeout) {
    return new Retries(patience, repeatable, pause, timeout);
  }
}
