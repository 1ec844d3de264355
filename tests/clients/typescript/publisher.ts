// The main calls with the client that is generated from openapi/publisher.yaml.
// Prints one line of JSON; the types are checked by the compiler before it runs.
import { client } from "./client/client.gen";
import { clearQueue, distribute, listQueues } from "./client/sdk.gen";
import type { ProblemDocument } from "./client/types.gen";

async function main(server: string, token: string, path: string, subscriber: string) {
  client.setConfig({ baseUrl: server, auth: () => token, throwOnError: true });
  const accepted = await distribute({
    body: { action: "ADD", paths: [path] },
    headers: { Prefer: "wait=60" },
    throwOnError: true,
  });
  const offset = accepted.data.offset!;
  const queues = await listQueues({ throwOnError: true });
  const cleared = await clearQueue({ path: { subscriber }, body: { up_to_offset: offset }, throwOnError: true });
  const refused = await distribute({ body: { action: "ADD", paths: ["/no/such/page"] }, throwOnError: false });
  const found: string[] = queues.data.queues.map((queue) => queue.subscriber);
  console.log(
    JSON.stringify({
      package_id: accepted.data.package_id,
      queues: found,
      command_id: cleared.data.command_id,
      state: accepted.data.state,
      up_to_offset: Number(cleared.data.up_to_offset) - Number(offset),
      refused: (refused.error as ProblemDocument).status,
    }),
  );
}

const [server, token, path, subscriber] = process.argv.slice(2);
main(server!, token!, path!, subscriber!).catch((error) => {
  console.error(error);
  process.exit(1);
});
