// The services are at "@packhorse/client/publisher", "…/content", "…/jobs" and so on.
export { retrying, type Retries } from "./retrying.js";
