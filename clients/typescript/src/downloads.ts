import { type Asked, pauseAfter } from "./retrying.js";

type Sleep = (seconds: number, signal?: AbortSignal) => Promise<void>;

/**
 * Returns an answer whose body ends with an error when its request is given up. Where it is one
 * binary as a whole, it goes on behind lost connections.
 */
export function resumed(
  asked: Asked,
  answer: Response,
  send: typeof fetch,
  patience: number,
  sleep: Sleep,
): Response {
  if (!answer.body) return answer;
  const etag = etagOf(asked.request, answer);
  const body = new Body(asked, answer.body.getReader(), etag, send, patience, sleep);
  return new Response(new ReadableStream(body), answer);
}

/** What is missing is asked for, if it is of the same binary still. */
class Body {
  private at = 0;
  private giveUp = () => {};

  constructor(
    private asked: Asked, // what it refers to hears the signal as long as somebody reads
    private reader: ReadableStreamDefaultReader<Uint8Array>,
    private etag: string,
    private send: typeof fetch,
    private patience: number,
    private sleep: Sleep,
  ) {}

  start(controller: ReadableStreamDefaultController): void {
    const { signal } = this.asked;
    this.giveUp = () => {
      controller.error(signal.reason);
      void this.cancel(signal.reason).catch(() => undefined);
    };
    signal.addEventListener("abort", this.giveUp);
    if (signal.aborted) this.giveUp();
  }

  async pull(controller: ReadableStreamDefaultController): Promise<void> {
    const part = await this.next().catch((lost) => {
      this.ended();
      throw lost;
    });
    if (part) return controller.enqueue(part);
    this.ended();
    controller.close();
  }

  cancel(why: unknown): Promise<void> {
    this.ended();
    return this.reader.cancel(why);
  }

  private ended(): void {
    this.asked.signal.removeEventListener("abort", this.giveUp);
  }

  private async next(): Promise<Uint8Array | undefined> {
    let began: number | undefined;
    for (let tries = 0; ; tries++) {
      try {
        const { value } = await this.reader.read();
        this.at += value?.byteLength ?? 0;
        return value;
      } catch (lost) {
        const now = performance.now() / 1000;
        const pause = pauseAfter(undefined, tries);
        began ??= now;
        if (!this.etag || this.asked.signal.aborted || now - began + pause > this.patience) throw lost;
        await this.sleep(pause, this.asked.signal);
        if (!(await this.rest())) throw lost;
      }
    }
  }

  private async rest(): Promise<boolean> {
    const { request, signal } = this.asked;
    const headers = new Headers(request.headers);
    headers.set("Range", `bytes=${this.at}-`);
    headers.set("If-Range", this.etag);
    const found = await this.send(new Request(request, { headers }), { signal });
    const range = found.headers.get("Content-Range") ?? "";
    const isRest = found.headers.get("ETag") === this.etag && range.startsWith(`bytes ${this.at}-`);
    if (found.status !== 206 || !isRest || !found.body) {
      await found.body?.cancel();
      return false;
    }
    this.reader = found.body.getReader();
    return true;
  }
}

/** Returns what names the binary, if an answer is one as a whole. */
function etagOf(request: Request, { status, headers }: Response): string {
  const isAsked = request.method === "GET" && !request.headers.has("Range");
  const isWhole = isAsked && status === 200 && headers.get("Accept-Ranges") === "bytes";
  const etag = headers.get("ETag") ?? "";
  return isWhole && etag.startsWith('"') && !headers.has("Content-Encoding") ? etag : "";
}
