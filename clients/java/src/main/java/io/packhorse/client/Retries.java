package io.packhorse.client;

/**
 * How long and how often a request is sent again.
 *
 * @param patience seconds from the first failure on; 0 for none, infinite for ever
 * @param repeatable whether every request may arrive twice: those of a producer, which are
 *     numbered, or a clear with a bound. It is sent again when its answer is lost, and gets no
 *     Idempotency-Key.
 * @param pause waits
 */
public record Retries(double patience, boolean repeatable, Pause pause) {
  /** Waits so many seconds. */
  public interface Pause {
    void of(double seconds) throws InterruptedException;
  }

  /** Sends again for a minute. */
  public Retries() {
    this(60, false, seconds -> Thread.sleep((long) (seconds * 1000)));
  }

  /** Returns retries for so many seconds. */
  public Retries forSeconds(double seconds) {
    return new Retries(seconds, repeatable, pause);
  }

  /** Returns retries of a client whose requests may all arrive twice. */
  public Retries ofRepeatable() {
    return new Retries(patience, true, pause);
  }
}
