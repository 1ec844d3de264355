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
  /** Waits, in seconds. */
  sleep?: (seconds: number) => Promise<void>;
  /** What sends a request. */
  fetch?: typeof fetch;
}

interface Tried {
  answer?: Response;
  lost?: unknown;
}

const AWAY = [502, 503, 504];
const FULL = 429;
/** A signal reaches a request only while something refers to the request: Node.js holds it weakly. */
const underWay = new Set<Request>();
const NOT_REACHED = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT)$/;

/**
 * Returns a `fetch` that sends a request again, under one Idempotency-Key, while the service is full
 * (429) or away (502, 503, 504) or its answer is lost, and waits as `Retry-After` says.
 */
export function retrying(retries: Retries = {}): typeof fetch {
  const { patience = 60, repeatable = false, sleep = slept } = retries;
  const send: typeof fetch = async (input, init) => {
    const request = prepared(new Request(input, init), repeatable);
    const twice = repeatable || mayArriveTwice(request);
    let began: number | undefined;
    for (let tries = 0; ; tries++) {
      const tried = await sent(retries.fetch ?? globalThis.fetch, request.clone());
      const now = performance.now() / 1000;
      const pause = pauseAfter(tried.answer, tries);
      began ??= now;
      const again = !request.signal.aborted && (await isSentAgain(tried, twice));
      if (!again || now - began + pause > patience) {
        if (tried.answer) return resumed(request, tried.answer, send, patience, sleep);
        throw tried.lost;
      }
      await sleep(pause);
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

function mayArriveTwice({ method, headers }: Request): boolean {
  if (headers.has("Idempotency-Key")) return true;
  return ["GET", "HEAD", "PUT", "DELETE"].includes(method) && !headers.has("If-Match");
}

async function sent(send: typeof fetch, request: Request): Promise<Tried> {
  try {
    const answer = await begun(send, request);
    const type = answer.headers.get("Content-Type") ?? "json";
    if (!type.includes("json")) return { answer };
    const body = await answer.arrayBuffer(); // a cut in the middle is found here
    return { answer: new Response(body.byteLength ? body : null, answer) };
  } catch (lost) {
    return { lost };
  }
}

/** Sends a request that hears its signal until its answer begins. */
export async function begun(send: typeof fetch, request: Request): Promise<Response> {
  underWay.add(request);
  try {
    return await send(request);
  } finally {
    underWay.delete(request);
  }
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
  if (/^\d+$/.test(asked)) return Number(asked);
  return (Math.min(10, 0.1 * 2 ** tries) * (1 + Math.random())) / 2;
}

export function slept(seconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, seconds * 1000));
}
