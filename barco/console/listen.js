// Shows a topic's events as they come, on from the last id when the connection ends. With fetch()
// rather than EventSource, which can show nobody's token. No text becomes markup.

import { parse, textOf, when } from "/console/draw.js";

const SHOWN = 200; // rows
const AGAIN_MS = 1000;
const at = (id) => document.getElementById(id);
const numbers = new Map(); // Of slices, by token and index.
let listening = null;

function headers(more = {}) {
  const token = sessionStorage.getItem("token");
  return { ...more, Authorization: `Bearer ${token || "-"}` }; // Else a 401 opens the browser's own dialog.
}

async function listTopics() {
  const answer = await fetch("/v1/topics", { headers: headers() });
  if (!answer.ok) return;
  const { topics } = await answer.json();
  at("topics").replaceChildren(
    ...topics.map((topic) => Object.assign(document.createElement("option"), { value: topic.topic })),
  );
}

// Numbers of the whole ring, as everywhere else.
async function listSlices(topic) {
  const answer = await fetch(`/v1/topic/${encodeURIComponent(topic)}/slices`, { headers: headers() });
  if (!answer.ok) return;
  const { slices } = await answer.json();
  slices.forEach(({ token, rangeIndex }, number) => numbers.set(`${token}/${rangeIndex}`, number));
}

function sliceOf({ token, rangeIndex }) {
  return numbers.get(`${token}/${rangeIndex}`) ?? `${token}/${rangeIndex}`;
}

function show(event) {
  const row = document.createElement("tr");
  for (const text of [when(event.timestamp), sliceOf(event), event.offset, event.key === null ? "–" : textOf(event.key), textOf(event.value)]) {
    const cell = document.createElement("td");
    cell.textContent = text;
    row.append(cell);
  }
  row.lastChild.className = "value";
  at("events").prepend(row);
  while (at("events").rows.length > SHOWN) at("events").lastChild.remove();
}

async function hear(topic, from, last, stop) {
  const query = last ? "" : `?from=${from}`;
  const sent = headers({ Accept: "text/event-stream", ...(last ? { "Last-Event-ID": last } : {}) });
  const answer = await fetch(`/v1/topic/${encodeURIComponent(topic)}/events${query}`, {
    headers: sent,
    signal: stop.signal,
  });
  if (!answer.ok) {
    const problem = await answer.json();
    throw Object.assign(new Error(problem.detail ?? problem.title), { over: answer.status < 500 });
  }
  at("state").textContent = `Listening to ${topic}.`;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const text of events) {
      const lines = text.split("\n");
      const id = lines.find((line) => line.startsWith("id: "));
      const data = lines.find((line) => line.startsWith("data: "));
      if (!id) continue; // A comment.
      if (data) show(parse(data.slice(6)));
      last = id.slice(4);
      stop.last = last;
    }
  }
}

async function listen(topic, from) {
  listening?.abort();
  const stop = (listening = new AbortController());
  at("events").replaceChildren();
  await listSlices(topic).catch(() => {});
  while (!stop.signal.aborted) {
    try {
      await hear(topic, from, stop.last, stop);
      at("state").textContent = "The connection ended; once more.";
    } catch (error) {
      if (stop.signal.aborted) return;
      at("state").textContent = error.message;
      if (error.over) return;
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

at("bar").addEventListener("submit", (event) => {
  event.preventDefault();
  if (at("token").value) sessionStorage.setItem("token", at("token").value.trim());
  at("token").value = "";
  void listen(at("topic").value.trim(), at("from").value);
  void listTopics();
});
void listTopics();
if (location.hash.length > 1) {
  at("topic").value = decodeURIComponent(location.hash.slice(1));
  at("from").value = "earliest";
  void listen(at("topic").value, "earliest");
}
