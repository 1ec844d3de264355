import { pauseAfter } from "./retrying.js";

/**
 * Returns an answer whose body, where it is one binary as a whole, goes on behind lost connections:
 * what is missing is asked for, if it is of the same binary still.
 */
export function resumed(
  request: Request,
  answer: Response,
  send: typeof fetch,
  patience: number,
  sleep: (seconds: number, signal?: AbortSignal) => Promise<void>,
): Response {
  const etag = etagOf(request, answer);
  if (!etag || !answer.body) return answer;
  let reader = answer.body.getReader();
  let at = 0;

  async function rest(): Promise<boolean> {
    const headers = new Headers(request.headers);
    headers.set("Range", `bytes=${at}-`);
    headers.set("If-Range", etag);
    const found = await send(new Request(request, { headers }));
    const range = found.headers.get("Content-Range") ?? "";
    const isRest = found.headers.get("ETag") === etag && range.startsWith(`bytes ${at}-`);
    if (found.status !== 206 || !isRest || !found.body) {
      await found.body?.cancel();
      return false;
    }
    reader = found.body.getReader();
    return true;
  }

  async function pull(controller: ReadableStreamDefaultController): Promise<void> {
    let began: number | undefined;
    for (let tries = 0; ; tries++) {
      try {
        const { done, value } = await reader.read();
        if (done) return controller.close();
        at += value.byteLength;
        return controller.enqueue(value);
      } catch (lost) {
        const now = performance.now() / 1000;
        const pause = pauseAfter(undefined, tries);
        began ??= now;
        if (request.signal.aborted || now - began + pause > patience) throw lost;
        await sleep(pause, request.signal);
        if (!(await rest())) throw lost;
      }
    }
  }

  return new Response(new ReadableStream({ pull, cancel: (why) => reader.cancel(why) }), answer);
}

/** Returns what names the binary, if an answer is one as a whole. */
function etagOf(request: Request, { status, headers }: Response): string {
  const isAsked = request.method === "GET" && !request.headers.has("Range");
  const isWhole = isAsked && status === 200 && headers.get("Accept-Ranges") === "bytes";
  const etag = headers.get("ETag") ?? "";
  return isWhole && etag.startsWith('"') && !headers.has("Content-Encoding") ? etag : "";
}
