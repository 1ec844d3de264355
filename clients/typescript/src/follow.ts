import { type Retries, retrying, slept } from "./retrying.js";

/** Something that happened; `id` goes on behind it: `after: event.id`. */
export interface StreamEvent {
  kind: string;
  id: string;
  data: any;
  /** It stands for events that nobody can show any more; `data` says which. Those behind it follow. */
  isGap: boolean;
}

export interface Follow extends Retries {
  token?: string;
  /** The id of the last event that was seen; "" begins now. */
  after?: string;
  signal?: AbortSignal;
  /** Seconds without a word after which a connection is lost; 45, for there is one every 15. */
  silence?: number;
}

interface Block {
  kind: string;
  id: string;
  data?: string;
  retry?: number;
}

const LONGEST_PAUSE = 30;

/**
 * Yields what a stream of server-sent events reports, for example `…/events?types=package`. A
 * connection that is lost is opened again for ever, behind the last event; the first one is tried as
 * `Retries` say. What the service refuses for good is thrown.
 */
export async function* follow(url: string, options: Follow = {}): AsyncGenerator<StreamEvent> {
  const { sleep = slept, silence = 45, signal } = options;
  const send = retrying({ ...options, timeout: silence });
  let id = options.after ?? "";
  let isConnected = false;
  let retry = 1;
  for (let losses = 0; ; losses++) {
    try {
      const body = await opened(send, url, id, options);
      isConnected = true;
      for await (const block of blocksOf(body, silence, signal)) {
        losses = 0;
        retry = block.retry ?? retry;
        id = block.id || id;
        if (block.data !== undefined) yield eventOf(block.kind, id, block.data);
      }
    } catch (error) {
      if (!isConnected || signal?.aborted || isForGood(error)) throw error;
    }
    signal?.throwIfAborted();
    await sleep(Math.min(LONGEST_PAUSE, retry * 2 ** losses), signal);
  }
}

async function opened(
  send: typeof fetch,
  url: string,
  id: string,
  { token, signal }: Follow,
): Promise<ReadableStream> {
  const headers = new Headers({ Accept: "text/event-stream", "Cache-Control": "no-store" });
  if (token) headers.set("Authorization", `Bearer ${token}`);
  if (id) headers.set("Last-Event-ID", id);
  const answer = await send(url, { headers, signal: signal ?? null });
  const isStream = answer.headers.get("Content-Type")?.startsWith("text/event-stream");
  if (answer.ok && isStream && answer.body) return answer.body;
  if (answer.ok) {
    await answer.body?.cancel();
    throw new TypeError("the answer is no stream of events");
  }
  throw await answer.json();
}

function isForGood(error: unknown): boolean {
  const { status } = error as { status?: number };
  return status !== undefined && status !== 429 && status < 500;
}

async function* blocksOf(
  body: ReadableStream,
  silence: number,
  signal?: AbortSignal,
): AsyncGenerator<Block> {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const lost = () => void reader.cancel().catch(() => undefined);
  signal?.addEventListener("abort", lost, { once: true });
  let text = "";
  try {
    while (true) {
      const silent = setTimeout(lost, silence * 1000);
      const { done, value } = await reader.read().finally(() => clearTimeout(silent));
      if (done) return; // what is not complete is sent again
      const parts = (text + value).split(/\r?\n\r?\n/);
      text = parts.pop()!;
      yield* parts.map(parsed);
    }
  } finally {
    signal?.removeEventListener("abort", lost);
    lost();
  }
}

function parsed(text: string): Block {
  const block: Block = { kind: "", id: "" };
  for (const line of text.split(/\r?\n/)) {
    const [field, ...values] = line.split(":");
    const value = values.join(":").replace(/^ /, "");
    if (field === "event") block.kind = value;
    if (field === "id") block.id = value;
    if (field === "data") block.data = block.data === undefined ? value : `${block.data}\n${value}`;
    if (field === "retry" && /^[1-9]\d{0,8}$/.test(value)) block.retry = Number(value) / 1000;
  }
  return block;
}

function eventOf(kind: string, id: string, text: string): StreamEvent {
  let data: unknown = text;
  try {
    data = JSON.parse(text);
  } catch {
    // it is no JSON: the text is meant
  }
  return { kind, id, data, isGap: kind === "gap" };
}
