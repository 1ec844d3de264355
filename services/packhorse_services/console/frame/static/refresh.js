// Keeps the page's content up to date: the server renders it, this replaces it, nothing is built
// from strings here. Rests while nobody looks.
"use strict";
(() => {
  const EVERY_MS = 2000;
  const ANSWER_MS = 30_000;
  const MOST_REST_MS = 60_000; // an answer that was slept over took hours
  const PRESS_MS = 3000; // nobody presses longer; a release outside the window may not be told
  const content = document.getElementById("content");
  const state = document.getElementById("state");
  let tag = null;
  let asking = false;
  let pressedAt = 0;
  let restUntil = 0;

  const tell = (text, wrong) => {
    state.textContent = text;
    state.classList.toggle("bad", wrong);
  };

  const relative = (date) => {
    const seconds = Math.round((date - Date.now()) / 1000);
    const far = Math.abs(seconds);
    const units = [[90, 1, "s"], [5400, 60, "min"], [172800, 3600, "h"], [Infinity, 86400, "d"]];
    const [, size, unit] = units.find(([limit]) => far < limit);
    const text = `${Math.round(far / size)} ${unit}`;
    return seconds > 0 ? `in ${text}` : `${text} ago`;
  };

  const showTimes = () => {
    for (const one of content.querySelectorAll("time[datetime]")) {
      const date = Date.parse(one.dateTime);
      if (Number.isNaN(date)) continue;
      one.textContent = relative(date);
      if (!one.title) one.title = one.dateTime;
    }
  };

  const keyOf = (one) =>
    one.dataset.key ?? one.getAttribute("href") ?? one.closest("details")?.dataset.key;
  const alike = (one) =>
    [...content.querySelectorAll(one.localName)].filter((other) => keyOf(other) === keyOf(one));

  const show = (text) => {
    const open = new Map();
    for (const one of content.querySelectorAll("details")) open.set(one.dataset.key, one.open);
    const focused = document.activeElement;
    const place = keyOf(focused) === undefined ? -1 : alike(focused).indexOf(focused);
    const found = new DOMParser().parseFromString(text, "text/html");
    content.replaceChildren(...found.body.childNodes);
    for (const one of content.querySelectorAll("details")) {
      one.open = open.get(one.dataset.key) ?? one.open;
    }
    if (place >= 0) alike(focused)[place]?.focus({ preventScroll: true });
  };

  const refresh = async () => {
    const headers = tag === null ? {} : { "If-None-Match": tag };
    const answer = await fetch(content.dataset.refresh + location.search, {
      headers,
      cache: "no-store",
      credentials: "same-origin",
      signal: AbortSignal.timeout(ANSWER_MS),
    });
    if (answer.status === 401 || answer.status === 403) {
      location.reload();
      return;
    }
    const text = answer.status === 304 ? null : await answer.text();
    // What is under the finger stays, or its click would be lost: nothing is waited for from here on.
    if (Date.now() - pressedAt < PRESS_MS) return;
    if (text !== null) {
      if (!answer.ok) throw new Error(`the service answers ${answer.status}`);
      if (content.querySelector("td form:hover, td .button:hover") !== null) {
        tell("waits until the pointer leaves the button", false); // it would be another row's
        return;
      }
      show(text);
      tag = answer.headers.get("ETag");
    }
    tell("live", false);
  };

  const tick = async () => {
    if (content.dataset.refresh === undefined) return showTimes(); // a page that does not follow
    if (asking || document.hidden || performance.now() < restUntil) return;
    asking = true;
    const began = performance.now();
    try {
      await refresh();
    } catch (error) {
      tell(`not live: ${error.message}`, true);
    } finally {
      asking = false;
      const now = performance.now(); // what costs much is not asked all the time
      restUntil = now + Math.min(9 * (now - began), MOST_REST_MS);
    }
    showTimes();
  };

  const address = new URL(location.href);
  if (address.searchParams.has("done")) { // said once: neither when it is loaded anew nor on the way back
    address.searchParams.delete("done");
    history.replaceState(null, "", address);
  }
  document.addEventListener("pointerdown", () => { pressedAt = Date.now(); });
  for (const end of ["pointerup", "pointercancel"]) {
    document.addEventListener(end, () => { pressedAt = 0; });
  }
  document.addEventListener("visibilitychange", tick);
  setInterval(tick, EVERY_MS);
  showTimes();
  tick();
})();
