// Makes one call of the client for each line of JSON, and prints a line with what came of it.
import { createHash } from "node:crypto";
import { openAsBlob } from "node:fs";
import { createInterface } from "node:readline";
import { follow, retrying, type Follow } from "@packhorse/client";
import * as cleanup from "@packhorse/client/cleanup";
import * as content from "@packhorse/client/content";
import * as jobs from "@packhorse/client/jobs";
import * as pipeline from "@packhorse/client/pipeline";
import * as publisher from "@packhorse/client/publisher";
import * as topology from "@packhorse/client/topology";

interface Asked {
  call: string;
  url: string;
  token: string;
  patience: number;
  repeatable: boolean;
  path: string;
  key?: string;
  subscriber: string;
  up_to?: number;
  topic: string;
  number: number;
  name: string;
  sequences: number[];
  after: string;
  silence?: number;
  timeout?: number;
  create?: boolean;
  working?: number;
  ends?: number; // after so many seconds; pauses are real
  count: number;
}

const throwOnError = true;

function adding(path: string) {
  return { action: "ADD" as const, paths: [path] };
}

async function download(digest: string) {
  const { data } = await content.getBlob({ path: { digest }, throwOnError });
  const bytes = Buffer.from(await (data as Blob).arrayBuffer());
  return createHash("sha256").update(bytes).digest("hex");
}

const CALLS: Record<string, (asked: Asked, settings: Follow) => Promise<unknown>> = {
  async distribute({ path, key }) {
    const headers = { "idempotency-key": key };
    const { data } = await publisher.distribute({ body: adding(path), headers, throwOnError });
    return { id: data.id, repeated: data.repeated };
  },
  async queues() {
    const { data } = await publisher.listQueues({ throwOnError });
    return data.queues.map((queue) => queue.subscriber);
  },
  async errors({ url, subscriber }) {
    const found = [];
    let cursor: string | undefined;
    do {
      const asked = { path: { subscriber }, query: { cursor }, throwOnError } as const;
      const { entries, next } = (await publisher.getErrorQueue(asked)).data;
      found.push(...entries.map(({ offset, reason }) => ({ offset, reason })));
      cursor = next ? new URL(next, url).searchParams.get("cursor")! : undefined;
    } while (cursor);
    return found;
  },
  async clear({ subscriber, up_to: up_to_offset }) {
    const body = up_to_offset === undefined ? undefined : { up_to_offset };
    const sent = { path: { subscriber }, body, throwOnError } as const;
    const { data } = await publisher.clearQueue(sent);
    return { command_id: data.command_id, up_to_offset: data.up_to_offset };
  },
  async add_job({ topic, key }) {
    const headers = { "idempotency-key": key };
    const body = { topic, properties: { size: 3 } };
    const { data } = await jobs.addJob({ body, headers, throwOnError });
    return { number: data.job.number, verdict: data.verdict };
  },
  async job({ number }) {
    const { data } = await jobs.getJob({ path: { number }, throwOnError });
    return { number: data.number, state: data.state, size: data.properties.size };
  },
  async remove_job({ number }) {
    await jobs.removeJob({ path: { number }, throwOnError });
  },
  async produce({ name, path, sequences }) {
    const { data } = await publisher.registerProducer({ path: { name }, throwOnError });
    const repeated = [];
    for (const sequence of sequences.filter((one) => one > (data.last_sequence ?? -1))) {
      const producer = { name, epoch: data.epoch, sequence };
      const body = { ...adding(path), producer };
      const sent = await publisher.distribute({ body });
      if (!sent.data && !sent.error?.type?.endsWith("/sequence-passed")) throw sent.error;
      repeated.push(sent.data?.repeated ?? true);
    }
    return repeated;
  },
  async put_node({ path, create }) {
    const body = { type: "page", properties: { title: "One" } };
    const headers = create ? { "if-none-match": "*" } : {};
    const named = { path: { path: path.slice(1) }, headers };
    const { data } = await content.putNode({ ...named, body, throwOnError });
    return { path: data.path };
  },
  async node({ path }) {
    const { data } = await content.getNode({ path: { path: path.slice(1) }, throwOnError });
    return { path: data.path, type: data.type, title: data.properties.title };
  },
  async blob({ path, name: digest }) {
    const body = await openAsBlob(path);
    await content.putBlob({ path: { digest }, body, throwOnError });
    return download(digest);
  },
  async download({ name }) {
    return download(name);
  },
  async events({ url, path, count, after, silence, working = 0 }, settings) {
    const found: unknown[] = [];
    const waiting = silence ? { after, silence } : { after };
    for await (const { isGap: gap, ...one } of follow(url + path, { ...settings, ...waiting })) {
      if (found.push({ ...one, gap }) === count) break;
      await new Promise((resolve) => setTimeout(resolve, working * 1000));
    }
    return found;
  },
  async document() {
    return (await pipeline.getDeliveryDocument({ throwOnError })).data;
  },
  async run({ number: run_id }) {
    return (await cleanup.getCleanupRun({ path: { run_id }, throwOnError })).data.id;
  },
  async topology() {
    const { data } = await topology.getTopology({ throwOnError });
    return { current: data.current, instances: data.clusters.map((one) => one.instances.length) };
  },
};

async function answered(asked: Asked) {
  const pauses: number[] = [];
  const { url: baseUrl, token, repeatable, timeout, ends } = asked;
  const patience = asked.patience < 0 ? Infinity : asked.patience;
  const sleep = async (seconds: number) => void pauses.push(seconds);
  const retries = { patience, repeatable, timeout, ...(ends ? {} : { sleep }) };
  const given = new AbortController();
  if (ends) setTimeout(() => given.abort(new Error("given up")), ends * 1000);
  const settings = { baseUrl, auth: token, fetch: retrying(retries), signal: given.signal };
  for (const { client } of [cleanup, content, jobs, pipeline, publisher, topology]) client.setConfig(settings);
  const isLeft = asked.call === "events" || ends; // what only a signal refers to is gone
  const collecting = isLeft ? setInterval(gc!, 50) : undefined;
  try {
    return { result: await CALLS[asked.call]!(asked, { ...retries, token }), pauses };
  } catch (error) {
    const { status = 0, type = "" } = error as { status?: number; type?: string };
    const said = error instanceof Error ? `${error}` : JSON.stringify(error);
    return { error: { status, kind: type.slice(type.lastIndexOf("/") + 1), said }, pauses };
  } finally {
    clearInterval(collecting);
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await answered(JSON.parse(line))));
}
