// Adds, finds, stops and retries a job with the client that is generated from openapi/jobs.yaml.
// Prints one line of JSON; the types are checked by the compiler before it runs.
import { client } from "./client/client.gen";
import { addJob, getJob, listJobs, putSchedule, retryJob, stopJob } from "./client/sdk.gen";

async function main(server: string, token: string, topic: string) {
  client.setConfig({ baseUrl: server, auth: () => token, throwOnError: true });
  const request = {
    body: { topic, properties: { size: 3 } },
    headers: { "idempotency-key": "once" },
    throwOnError: true,
  } as const;
  const added = await addJob(request);
  const again = await addJob(request);
  const number = added.data.job.number;
  const query = { topic, template: ['{">=size": 3}'] };
  const found = await listJobs({ query, throwOnError: true });
  const stopped = await stopJob({ path: { number }, throwOnError: true });
  const retried = await retryJob({ path: { number }, throwOnError: true });
  const seen = await getJob({ path: { number }, throwOnError: true });
  const schedule = await putSchedule({
    path: { name: "nightly" },
    body: { topic, cron: "30 2 * * *" },
    throwOnError: true,
  });
  const refused = await putSchedule({
    path: { name: "never" },
    body: { topic, cron: "0 0 31 2 *" },
    throwOnError: false,
  });
  console.log(
    JSON.stringify({
      number,
      again: again.data.job.number,
      found: found.data.jobs.map((job) => job.number),
      states: [stopped.data.state, retried.data.state, seen.data.state],
      size: seen.data.properties["size"],
      schedule: schedule.data.cron,
      refused: refused.response?.status,
    }),
  );
}

const [server, token, topic] = process.argv.slice(2);
main(server!, token!, topic!).catch((error) => {
  console.error(error);
  process.exit(1);
});
