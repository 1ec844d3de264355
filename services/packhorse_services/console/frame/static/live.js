// Follows a stream of rows that the server renders: nothing is built from strings here. Rests while
// nobody looks, and moves nothing under the pointer.
"use strict";
(() => {
  const MOST = 500; // rows on the page
  const MOST_HELD = 5000;
  const AGAIN_MS = 2000;
  const content = document.getElementById("content");
  const rows = document.getElementById("rows");
  const none = document.getElementById("none");
  const unmatched = document.getElementById("unmatched");
  const state = document.getElementById("state");
  const told = document.getElementById("held");
  const pause = document.getElementById("pause");
  const contains = document.getElementById("contains");
  const states = new Map(); // of the subscribers: each connection begins with all of them
  let held = [];
  let left = 0;
  let last = "";
  let source = null;

  const tell = (text, wrong) => {
    state.textContent = text;
    state.classList.toggle("bad", wrong);
  };
  const paused = () => pause.getAttribute("aria-pressed") === "true";
  const kept = (row) => row.dataset.line.toLowerCase().includes(contains.value.toLowerCase());

  const match = () => {
    unmatched.hidden = rows.children.length === 0 || rows.querySelector("tr:not([hidden])") !== null;
  };

  const settle = () => {
    if (!paused() && !rows.matches(":hover")) {
      for (const row of held) rows.prepend(row);
      held = [];
      left = 0;
      while (rows.children.length > MOST) rows.lastElementChild.remove();
    }
    const more = left === 0 ? "" : `, ${left} were left out`;
    const why = paused() ? "" : "; they come when the pointer leaves the rows";
    told.textContent = held.length === 0 ? "" : `${held.length} more${more}${why}`;
    none.hidden = rows.children.length > 0 || held.length > 0;
    match();
  };

  const heard = (event) => {
    last = event.lastEventId || last;
    tell("live", false);
  };

  const took = (event) => {
    heard(event);
    const row = new DOMParser().parseFromString(event.data, "text/html").querySelector("tr");
    if (row === null) return;
    const { subscriber, state: now } = row.dataset;
    if (subscriber !== undefined) {
      if (states.get(subscriber) === now) return;
      states.set(subscriber, now);
    }
    row.hidden = !kept(row);
    held.push(row);
    if (held.length > MOST_HELD) {
      held.shift();
      left += 1;
    }
    settle();
  };

  const ended = (event) => {
    source.close();
    tell(`not live: ${JSON.parse(event.data)}`, true);
  };

  const open = () => {
    const wanted = new URLSearchParams(location.search);
    if (last !== "") wanted.set("after", last);
    source = new EventSource(`${content.dataset.stream}?${wanted}`);
    source.onerror = () => {
      const gone = source.readyState === EventSource.CLOSED;
      tell(gone ? "not live: the console refuses; load the page anew" : "connecting…", gone);
    };
    source.addEventListener("position", heard);
    source.addEventListener("row", took);
    source.addEventListener("refused", ended);
    source.addEventListener("away", (event) => {
      ended(event);
      setTimeout(() => { if (source.readyState === EventSource.CLOSED) look(); }, AGAIN_MS);
    });
  };

  const look = () => {
    if (source !== null) source.close();
    if (document.hidden) tell("rests while it is hidden", false);
    else open();
  };

  const save = () => {
    const lines = [...held.slice().reverse(), ...rows.children].filter((row) => !row.hidden);
    const text = lines.map((row) => `${row.dataset.line}\n`).reverse().join("");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
    link.download = "events.ndjson";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  pause.addEventListener("click", () => {
    const now = !paused();
    pause.setAttribute("aria-pressed", String(now));
    pause.textContent = now ? "Go on" : "Pause";
    settle();
  });
  contains.addEventListener("input", () => {
    for (const row of [...rows.children, ...held]) row.hidden = !kept(row);
    match();
  });
  document.getElementById("empty").addEventListener("click", () => {
    held = [];
    left = 0;
    rows.replaceChildren();
    settle();
  });
  document.getElementById("export").addEventListener("click", save);
  rows.addEventListener("pointerleave", settle);
  document.addEventListener("visibilitychange", look);
  look();
})();
