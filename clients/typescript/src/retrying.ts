import { resumed } from "./downloads.js";
import { keyed, trees } from "./routes.js";

/** How long and how often a request is sent again. */
export interface Retries {
  /** Seconds from the first failure on; 60 by default, 0 for none, Infinity for ever. */
  patience?: number;
  /**
   * Every request of this client may arrive twice: those of a producer, which are numbered, or a
   * clear with a bound. It is sent again when its answer is lost, and gets no Idempotency-Key.
   */
  repeatable?: boolean;
  /**
   * Seconds after which an answer that does not begin is lost; 90 by default, for a service may be
   * asked to wait for 60. A file takes as long as it takes.
   */
  timeout?: number;
  /** Waits, in seconds, and rejects when the signal is aborted. */
  sleep?: (seconds: number, signal?: AbortSignal) => Promise<void>;
  /** What sends a request. */
  fetch?: typeof fetch;
}

/**
 * A request, and the signal of who asks. That is heard only while somebody refers to what it was
 * given in: Node.js holds it weakly.
 */
export interface Asked {
  request: Request;
  signal: AbortSignal;
  from: readonly unknown[];
}

interface Tried {
  answer?: Response;
  lost?: unknown;
}

const AWAY = [408, 502, 503, 504];
const FULL = 429;
const LONGEST_TIMER = 2 ** 31 - 1;
const LONGEST_REFUSAL = 2 ** 20; // bytes; what is behind them is not read
/** Its first DELETE ends a job that waits, and a second one forgets it. */
const JOB = /^(?!.*\/content\/).*\/jobs\/\d+$/;
const NOT_REACHED = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT)$/;

/**
 * Returns a `fetch` that sends a request again, under one Idempotency-Key, while the service is full
 * (429) or away (502, 503, 504), its body came too slowly (408) or its answer is lost, and waits as
 * `Retry-After` says.
 */
export function retrying(retries: Retries = {}): typeof fetch {
  const { patience = 60, repeatable = false, timeout = 90, sleep = slept } = retries;
  const send: typeof fetch = async (input, init) => {
    const given = new Request(input, init);
    const request = prepared(given, repeatable);
    const asked = { request, signal: given.signal, from: [input, given] };
    const twice = repeatable || mayArriveTwice(request);
    const limit = isJson(request) ? timeout : Infinity;
    let began: number | undefined;
    for (let tries = 0; ; tries++) {
      const tried = await sent(retries.fetch ?? globalThis.fetch, asked, limit);
      const now = performance.now() / 1000;
      const pause = pauseAfter(tried.answer, tries);
      began ??= now;
      const again = !asked.signal.aborted && (await isSentAgain(tried, twice));
      if (!again || now - began + pause > patience) {
        if (tried.answer) return resumed(asked, tried.answer, send, patience, sleep);
        throw tried.lost;
      }
      await sleep(pause, asked.signal);
    }
  };
  return send;
}

function prepared(request: Request, repeatable: boolean): Request {
  const url = new URL(request.url);
  if (trees.test(url.pathname)) {
    url.pathname = url.pathname.replaceAll(/%2f/gi, "/"); // a name holds no slash
    request = new Request(url, request);
  }
  const takesKey = request.method === "POST" && keyed.test(url.pathname);
  if (takesKey && !repeatable && !request.headers.has("Idempotency-Key")) {
    request.headers.set("Idempotency-Key", crypto.randomUUID());
  }
  return request;
}

function mayArriveTwice({ method, headers, url }: Request): boolean {
  if (headers.has("Idempotency-Key")) return true;
  if (["GET", "HEAD"].includes(method)) return true;
  if (method === "DELETE" && JOB.test(new URL(url).pathname)) return false;
  // a second try may not meet the condition that the first one has met
  const conditional = headers.has("If-Match") || headers.has("If-None-Match");
  return ["PUT", "DELETE"].includes(method) && !conditional;
}

function isJson({ headers }: Request | Response): boolean {
  return (headers.get("Content-Type") ?? "json").includes("json");
}

/** Sends a request, whose answer begins in so many seconds; it is read as a whole unless it is a file. */
async function sent(send: typeof fetch, asked: Asked, limit: number): Promise<Tried> {
  const { signal } = asked;
  const closing = new AbortController();
  const close = () => closing.abort(signal.reason ?? new TypeError("no answer in time"));
  const late = setTimeout(close, Math.min(limit * 1000, LONGEST_TIMER));
  signal.addEventListener("abort", close);
  if (signal.aborted) close();
  try {
    const answer = await send(asked.request.clone(), { signal: closing.signal });
    clearTimeout(late);
    if (answer.status >= 400) return { answer: new Response(await problemOf(answer), answer) };
    if (!isWhole(answer)) return { answer };
    const body = await answer.arrayBuffer(); // a cut in the middle is found here
    return { answer: new Response(body.byteLength ? body : null, answer) };
  } catch (lost) {
    return { lost };
  } finally {
    clearTimeout(late);
    signal.removeEventListener("abort", close);
  }
}

/** Whether it is JSON, and no binary that consists of some. */
function isWhole(answer: Response): boolean {
  return isJson(answer) && answer.headers.get("Accept-Ranges") !== "bytes";
}

/** Returns the beginning of a refusal, in a problem document where it is none: a proxy's page. */
async function problemOf({ body, status, statusText: title }: Response): Promise<string> {
  const decoder = new TextDecoder();
  let [text, length] = ["", 0];
  for await (const part of body ?? []) {
    text += decoder.decode(part.subarray(0, LONGEST_REFUSAL - length), { stream: true });
    length += part.byteLength;
    if (length >= LONGEST_REFUSAL) break; // it cancels the rest
  }
  try {
    if (JSON.parse(text).status === status) return text;
  } catch {
    // it is no JSON, or the beginning of some
  }
  return JSON.stringify({ type: "about:blank", title, status, detail: text });
}

async function isSentAgain({ answer, lost }: Tried, twice: boolean): Promise<boolean> {
  if (!answer) return twice || NOT_REACHED.test(codeOf(lost));
  if (answer.status === FULL) return true;
  if (AWAY.includes(answer.status)) return twice;
  // an earlier try has not ended: its answer will be the same
  return answer.status === 409 && (await answer.clone().text()).includes("/key-in-progress");
}

function codeOf(lost: unknown): string {
  const cause = (lost as { cause?: { code?: unknown } }).cause;
  return String(cause?.code);
}

export function pauseAfter(answer: Response | undefined, tries: number): number {
  const asked = answer?.headers.get("Retry-After") ?? "";
  if (/^\d{1,9}$/.test(asked)) return Number(asked);
  return (Math.min(10, 0.1 * 2 ** tries) * (1 + Math.random())) / 2;
}

export function slept(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      if (signal?.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(end, Math.min(seconds * 1000, LONGEST_TIMER));
    signal?.addEventListener("abort", end);
    if (signal?.aborted) end();
  });
}
