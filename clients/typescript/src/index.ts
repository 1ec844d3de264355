// The services are at "@packhorse/client/publisher", "…/content", "…/jobs" and so on.
export { follow, type Follow, type StreamEvent } from "./follow.js";
export { retrying, type Retries } from "./retrying.js";
