// The console: asks the public API of the broker that served it, and draws what it says.
// Nothing is asked of anybody else, no text becomes markup, and what it does not know it does not show.

import { ring, spans, swatch } from "/console/ring.js";
import { auditPage, jobsPage } from "/console/jobs.js";
import { inWords, isGrave, isLetter, lettersOf, marksOf, sure } from "/console/letters.js";
import { amounts, delays, note, rate, rates, recall } from "/console/past.js";
import { LOOK_BYTES, conditionsOf, cursorOf, offsetOf, searchOf } from "/console/where.js";
import { HOUR, chart, count, bytes, duration, element, fill, frame, lasting, parse, spark, table, textOf, when } from "/console/draw.js";

const PAUSE_MS = 2000;
const HISTORY = 1800; // Lags that are kept: an hour.
const SPARKS = 64; // Slices whose lag is drawn, those that are furthest behind.
const SPARK_POINTS = 120; // Of one of them: then every second one goes.
const STEPS = 12; // Of the hour before a topic is looked at.
const LATELY = { "Cache-Control": "max-age=2" }; // What somebody else was told a look ago will do.
const A_WHILE_AGO = { "Cache-Control": "max-age=5" }; // Of lags, which are many questions.
const LAGS_EVERY = 5; // Looks until each group has been asked for its lag, where there are many.
const EVENTS_MAX = 500;
const TOPICS_SHOWN = 100; // At a time.
const GROUPS_ASKED = 100; // For their lag.
const READ_BYTES = 262144; // Of a slice, at a time.
const STAGES = {
  receive: "receive: a request's body",
  gather: "gather: until a group is built",
  write: "write: on this broker's disk",
  replicate: "replicate: on a follower's disk",
  answer: "answer: until answers are on their way",
  whole: "whole: from a head to its answer",
};
const ALL = "all brokers";
const NAME = /^[A-Za-z0-9_.-]{1,127}$/;
const TIME = /^\d{4}-\d{2}-\d{2}/; // Date.parse takes a cursor, and "12", for days of 2001.

const main = document.getElementById("main");
let shown = null; // The page that is open: {name, update}.
let last = {};

// --- Asking ---------------------------------------------------------------------------------------

class Refused extends Error {}

export async function ask(path, options = {}) {
  const token = sessionStorage.getItem("token");
  const headers = { Accept: "application/json", ...options.headers };
  headers.Authorization = `Bearer ${token || "-"}`; // Else a 401 opens the browser's own dialog.
  const answer = await fetch(path, { ...options, headers, cache: "no-store" });
  if (answer.status === 401) {
    await askForToken();
    return ask(path, options);
  }
  if (!answer.ok && answer.status !== 503) throw new Refused(await reason(answer));
  if (options.raw) return answer;
  if (answer.status === 204) return null;
  const body = await answer.json();
  if (answer.status === 503 && path !== "/status") throw new Refused(body.detail ?? "not ready");
  return body;
}

const lately = (path) => ask(path, { headers: LATELY });

// What was granted to who looks: what would be refused is not offered. The broker decides all the same.
let mine = null;
async function whoAmI() {
  mine ??= await ask("/v1/me").catch(() => ({ everybody: true })); // An earlier version does not say.
  document.getElementById("audit").hidden = !mine.everybody && !mine.grants.includes("users");
}

const covers = (pattern, name) => (pattern.endsWith("*") ? name.startsWith(pattern.slice(0, -1)) : name === pattern);

function may(verb, topic, group) {
  if (!mine || mine.everybody) return true;
  return mine.grants.some((each) => {
    const [granted, topics = "", groups = "*"] = each.split(":");
    return granted === verb && covers(topics, topic) && (group === undefined || covers(groups, group));
  });
}

async function reason(answer) {
  try {
    const problem = await answer.json();
    return problem.detail ?? problem.title ?? `answer ${answer.status}`;
  } catch {
    return `answer ${answer.status}`;
  }
}

let asking = null;
function askForToken() {
  const dialog = document.getElementById("ask");
  asking ??= new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      sessionStorage.setItem("token", document.getElementById("token").value.trim());
      document.getElementById("token").value = "";
      mine = null;
      asking = null;
      resolve();
    }, { once: true });
    dialog.showModal();
  });
  return asking;
}

// --- Looking, again and again -----------------------------------------------------------------------

// Health and the ring are asked for in turn, for they cost a broker more than figures do.
let looks = 0;
async function look() {
  const even = looks++ % 2 === 0;
  const [health, topology, figures] = await Promise.allSettled([
    even || !last.health || last.health.silent ? lately("/v1/health") : last.health,
    !last.topology || (shown?.ring && !even) ? lately("/v1/topology?copies") : last.topology,
    lately("/v1/figures"),
  ]);
  const failed = [figures, health].find((each) => each.status === "rejected");
  last = {
    health: failed ? { headline: failed.reason.message, wrong: [], notes: [], silent: true } : health.value,
    topology: topology.value ?? last.topology,
    figures: figures.value ?? null,
  };
  if (last.figures) note(last.figures);
  showHealth(last.health);
  document.getElementById("clock").textContent = new Date().toLocaleTimeString();
  await shown?.update?.();
}

async function run() {
  for (;;) {
    if (!document.hidden) {
      try {
        await look();
      } catch (error) {
        showHealth({ headline: `No answer: ${error.message}`, wrong: [], notes: [], silent: true });
      }
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

function showHealth(health) {
  const well = !health.wrong.length && !health.silent;
  const lines = [
    element("p", { class: `headline ${well ? "good" : "bad"}` }, `${well ? "✓" : "✗"} ${health.headline}`),
    ...health.wrong.slice(0, 8).map((each) => element("p", { class: "bad" }, `✗ ${each}`)),
    ...health.notes.slice(0, 4).map((each) => element("p", { class: "note" }, `· ${each}`)),
  ];
  if (health.wrong.length > 8) {
    lines.push(element("p", { class: "bad" }, `and ${health.wrong.length - 8} more: barco status`));
  }
  const there = document.getElementById("health");
  const text = lines.map((each) => each.textContent).join("\n");
  if (there.dataset.text !== text) { // Else a screen reader would say it every two seconds.
    there.dataset.text = text;
    fill(there, lines);
  }
}

// --- Pages ----------------------------------------------------------------------------------------

function ringPage() {
  const picture = element("div");
  const charts = element("div", { class: "charts" });
  const whose = element("select", { id: "whose" });
  const stages = element("div", { class: "charts" });
  const brokers = element("div", { class: "scroll", tabindex: "0", "aria-label": "Brokers" });
  const ranges = element("div", { class: "scroll", tabindex: "0", "aria-label": "Ranges" });
  const going = element("p", { class: "note" });
  const brokerTable = lasting(["broker", "address", "state", "#leads", "#events/s", "#in/s", "#out/s", "#cores", "#memory", "#disk free", "#scrub/s"]);
  const rangeTable = lasting(["slices", "leader", "copies", "#epoch", "generations"]);
  fill(brokers, [brokerTable.node]);
  fill(ranges, [rangeTable.node]);
  let seen = null;
  let pictured = ""; // What the picture was drawn of: it is drawn anew where that has changed.
  fill(main, [
    element("form", { class: "bar" }, [element("label", { for: "whose" }, ["charts of", whose])]),
    charts,
    element("div", { class: "columns" }, [
      element("div", {}, [element("h2", {}, "The ring"), going, picture]),
      element("div", {}, [
        element("h2", {}, "Brokers"), brokers, element("h3", {}, "Ranges, each with one log"), ranges,
      ]),
    ]),
    element("h2", {}, "How long produces take, by stage"),
    stages,
  ]);
  const drawCharts = () => {
    const ordinal = whose.value === "" || whose.value === ALL ? undefined : Number(whose.value.split(" ")[1]);
    fill(charts, [
      chart("events/s", rates("events", ordinal), count),
      chart("bytes in/s", rates("value_bytes", ordinal), bytes),
      chart("bytes out/s", rates("bytes_out", ordinal), bytes),
      chart("cores", rates("process_cpu_seconds", ordinal), (value) => value.toFixed(2)),
      chart("memory", amounts("process_resident_bytes", ordinal), bytes),
      chart("disk free", amounts("storage_free_bytes", ordinal), bytes),
    ]);
    fill(stages, Object.entries(STAGES).map(([stage, name]) => {
      const [, middle] = delays(stage, "p50", ordinal).at(-1) ?? [];
      return chart(`${name}, p99`, delays(stage, "p99", ordinal), duration, `p50 ${middle ? duration(middle) : "–"}`);
    }));
    recall(lately, ordinal).then((more) => { if (more) drawCharts(); });
  };
  whose.addEventListener("change", drawCharts);
  const update = async () => {
    const { topology, figures } = last;
    const names = [ALL, ...(figures?.brokers ?? []).map((each) => `broker ${each.ordinal}`)];
    if (whose.dataset.names !== names.join()) {
      const chosen = whose.value;
      whose.dataset.names = names.join();
      fill(whose, names.map((each) => element("option", {}, each)));
      if (names.includes(chosen)) whose.value = chosen;
    }
    drawCharts();
    if (!topology) return;
    going.textContent = goingOn(topology);
    await frame();
    brokerTable.show(brokerRows(topology, figures));
    if (topology === seen) return; // It is asked for every other time.
    seen = topology;
    await frame();
    const drawn = JSON.stringify([topology.routes, topology.brokers]);
    if (drawn !== pictured) fill(picture, [ring(topology)]);
    pictured = drawn;
    rangeTable.show(rangeRows(topology));
  };
  update();
  return { update, ring: true };
}

function brokerRows(topology, figures) {
  const told = Object.fromEntries((figures?.brokers ?? []).map((each) => [each.ordinal, each]));
  const alone = topology.brokers.length === 1;
  const led = new Map();
  for (const each of topology.routes) led.set(each.leader, (led.get(each.leader) ?? 0) + each.slices);
  return topology.brokers.map((broker) => {
    const own = told[alone ? 0 : broker.ordinal]?.figures ?? {};
    const number = alone ? 0 : broker.ordinal;
    const state = broker.state ?? "alive";
    const heard = told[number]?.workers > 0; // Else nothing is known of now.
    const now = (name) => (heard ? rate(name, number) : null);
    const cores = now("process_cpu_seconds");
    return [
      { text: broker.ordinal, make: () => element("span", {}, [swatch(broker.ordinal), String(broker.ordinal)]) },
      broker.name,
      { text: state, make: () => element("span", { class: state === "alive" ? "good" : "bad" }, state) },
      led.get(broker.ordinal) ?? 0,
      count(now("events")), bytes(now("value_bytes")), bytes(now("bytes_out")),
      cores === null ? "–" : cores.toFixed(2),
      bytes(own.process_resident_bytes), bytes(own.storage_free_bytes), bytes(now("storage_scrub_bytes")),
    ];
  });
}

// What the ring is being made into, where it is not what was asked for yet.
function goingOn({ target, routes }) {
  const planned = (target?.brokers ?? []).reduce((sum, each) => sum + each.workers, 0);
  const handed = routes.filter((each) => each.handed).map((each) => spans(each.first, each.slices));
  return [
    ...(target?.version && planned !== routes.length
      ? [`On the way to ${target.brokers.length} brokers: ${routes.length} ranges now, ${planned} then.`] : []),
    ...(handed.length ? [`Handed over, and not taken in yet: slices ${handed.join(", ")}.`] : []),
  ].join(" ");
}

function rangeRows(topology) {
  const ranges = new Map(topology.ranges.map((each, index) => [each.token, index]));
  const shards = new Map(topology.shards.map((each) =>
    [ranges.get(each.token) * topology.slicesPerRange + each.slices[0], each]));
  return topology.routes.map((route) => {
    const copies = (route.followers ?? []).map((each) => {
      const state = each.synced ? "in sync" : each.state === "down" ? "down" : `${each.groupsBehind} behind`;
      return `broker ${each.ordinal}: ${state}`;
    });
    const shard = shards.get(route.first);
    return [
      spans(route.first, route.slices),
      route.leader ?? { text: "nobody", make: () => element("span", { class: "bad" }, "nobody") },
      copies.join(", ") || "–",
      route.version,
      (shard?.generations ?? []).map((each) => each.epoch).slice(-8).join(" → "),
    ];
  });
}

// A slice's number in the whole ring.
function sliceOf({ token, rangeIndex }) {
  const range = last.topology?.ranges.findIndex((each) => each.token === token) ?? -1;
  return range < 0 ? `${token}/${rangeIndex}` : range * last.topology.slicesPerRange + rangeIndex;
}

function topicsPage() {
  const rows = element("div", { class: "scroll", tabindex: "0", "aria-label": "Topics" });
  const filter = element("input", { type: "search", id: "filter", autocomplete: "off" });
  fill(main, [
    element("h2", {}, "Topics"),
    element("form", { class: "bar" }, [element("label", { for: "filter" }, ["name has", filter])]),
    rows,
  ]);
  let before = null;
  let topics = [];
  let most = TOPICS_SHOWN;
  const listed = lasting(["topic", "#events", "#events/s", "#kept, hours", "compression"]);
  const said = element("p", { class: "quiet" });
  const further = element("button", { type: "button", hidden: "" }, `Show ${TOPICS_SHOWN} more`);
  further.addEventListener("click", () => {
    most += TOPICS_SHOWN;
    draw();
  });
  fill(rows, [listed.node, said, further]);
  const draw = () => {
    const wanted = filter.value.toLowerCase();
    const kept = topics.filter((each) => each.topic.toLowerCase().includes(wanted));
    listed.show(kept.slice(0, most).map((each) => [
      {
        text: each.topic,
        make: () => element("span", {}, [
          element("a", { href: `#topic/${each.topic}` }, each.topic),
          ...(isGrave(each.topic) ? [element("span", { class: "quiet" }, " dead letters")] : []),
        ]),
      },
      count(each.events), count(each.rate), each.retentionHours || "–", each.compression,
    ]));
    said.textContent = kept.length > most ? `${most} of ${kept.length} topics` : `${kept.length} topics`;
    further.hidden = kept.length <= most;
  };
  filter.addEventListener("input", draw);
  const update = async () => {
    const now = { at: performance.now() / 1000, topics: (await lately("/v1/topics")).topics };
    const earlier = new Map((before?.topics ?? []).map((each) => [each.topic, each.events]));
    topics = now.topics.map((each) => ({
      ...each,
      rate: earlier.has(each.topic)
        ? Math.max(0, each.events - earlier.get(each.topic)) / (now.at - before.at) : null,
    }));
    before = now;
    await frame(); // What came has just been parsed.
    draw();
  };
  return { update };
}

function groupsPage() {
  const rows = element("div", { class: "scroll", tabindex: "0", "aria-label": "Groups" });
  fill(main, [element("h2", {}, "Groups"), rows]);
  const positionsOf = new Map(); // As each group was told last.
  let looks = 0;
  const update = async () => {
    const { groups } = await lately("/v1/groups");
    const turn = looks++ % LAGS_EVERY;
    await Promise.allSettled(groups.slice(0, GROUPS_ASKED).map(async ({ group }, index) => {
      if (positionsOf.has(group) && index % LAGS_EVERY !== turn) return;
      positionsOf.set(group, (await ask(`/v1/groups/${encodeURIComponent(group)}`, { headers: A_WHILE_AGO })).positions ?? []);
    }));
    fill(rows, [
      groups.length
        ? table(
          ["group", "#members", "#lag", "topics"],
          groups.map((each) => {
            const known = positionsOf.get(each.group);
            const positions = known ?? [];
            return [
              element("a", { href: `#group/${encodeURIComponent(each.group)}` }, each.group),
              each.members, known ? count(lagOf(known)) : "–",
              [...new Set(positions.map((one) => one.topic))].slice(0, 10).join(", "),
            ];
          }),
        )
        : element("p", { class: "quiet" }, "No group has members or positions."),
    ]);
  };
  return { update };
}

const lagOf = (positions) => positions.reduce((sum, each) => sum + Number(each.lag ?? 0), 0);

function groupPage(group) {
  const members = element("p", { class: "quiet" });
  const trend = element("div", { class: "charts" });
  const rows = element("div", { class: "scroll", tabindex: "0", "aria-label": "Positions" });
  const topic = element("select", { id: "seek-topic" });
  const to = element("input", { id: "seek-to", value: "earliest", size: "26", list: "places" });
  const said = element("p", { role: "status" });
  const graves = element("p", { class: "quiet" });
  const form = element("form", { class: "bar" }, [
    element("label", { for: "seek-topic" }, ["topic", topic]),
    element("label", { for: "seek-to" }, ["to: earliest, latest, or a time", to]),
    element("button", {}, "Move its positions"),
  ]);
  const moving = element("div", {}, [element("h3", {}, "Read again, or skip"), form, said]);
  fill(main, [
    element("h2", {}, [element("a", { href: "#groups" }, "Groups"), ` / ${group}`]),
    members, graves, trend, rows, moving,
  ]);
  const lags = [];
  const bySlice = new Map(); // Lags of each slice over time.
  let positions = [];
  const offer = () => { // A queue has no positions that could be moved.
    moving.hidden = positions.some((each) => each.queue)
      || !positions.some((each) => may("consume", each.topic, group));
    const found = [...new Set(positions.filter((each) => each.queue?.maxDeliveries).map((each) => each.queue.dead ?? `${each.topic}.dead`))];
    fill(graves, found.flatMap((each) => ["Dead letters: ", element("a", { href: `#topic/${each}` }, each), " "]));
  };
  whoAmI().then(offer);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const place = placeOf(to.value);
    const own = positions.filter((each) => each.topic === topic.value);
    const now = lagOf(own);
    const kept = own.reduce((sum, each) => sum + Number(each.endOffset) - Number(each.startOffset), 0);
    const then = place === "latest" ? 0 : place === "earliest" ? kept : null;
    const preview = then === null ? "" : ` ${count(now)} events are left to read now, ${count(then)} then.`;
    if (!confirm(`Move group ${group} in ${topic.value} to ${place}?${preview}`)) return;
    try {
      await ask(`${path}/positions`, {
        method: "PUT",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ topic: topic.value, to: place }),
      });
      said.textContent = "Moved.";
      show(await ask(path)); // As it is from now on.
    } catch (error) {
      said.textContent = error.message;
    }
  });
  const path = `/v1/groups/${encodeURIComponent(group)}`;
  const update = async () => show(await lately(path));
  const show = (told) => {
    positions = told.positions ?? [];
    offer();
    const now = performance.now() / 1000;
    lags.push([now, lagOf(positions)]);
    if (lags.length > HISTORY) lags.shift();
    for (const each of positions) {
      const name = `${each.topic}/${sliceOf(each)}`;
      const points = bySlice.get(name) ?? [];
      points.push([now, Number(each.lag)]);
      bySlice.set(name, points.length > SPARK_POINTS ? points.filter((_, index) => index % 2 || index === points.length - 1) : points);
    }
    members.textContent = told.members?.length
      ? `Members: ${told.members.map((each) => each.consumerId ?? each).join(", ")}`
      : "Nobody reads in this group now.";
    fill(trend, [chart("lag", lags, count)]);
    const topics = [...new Set(positions.map((each) => each.topic))];
    if (topics.join() !== topic.dataset.names) {
      topic.dataset.names = topics.join();
      fill(topic, topics.map((each) => element("option", {}, each)));
    }
    fill(rows, [
      table(
        ["topic", "slice", "#position", "#end", "#lag", "over time", "read by"],
        [...positions].sort((a, b) => Number(b.lag) - Number(a.lag)).slice(0, 500).map((each, index) => [
          each.topic, sliceOf(each), count(Number(each.offset)),
          count(Number(each.endOffset)), count(Number(each.lag)),
          index < SPARKS ? spark(bySlice.get(`${each.topic}/${sliceOf(each)}`)) : "–",
          each.consumerId ?? "–",
        ]),
      ),
    ]);
  };
  return { update };
}

function placeOf(text) {
  const given = text.trim();
  if (given === "" || given === "earliest" || given === "latest" || given.startsWith("timestamp:")) {
    return given || "earliest";
  }
  const time = TIME.test(given) ? Date.parse(given) : NaN;
  return Number.isNaN(time) ? given : `timestamp:${time * 1000}`;
}

function topicPage(topic, options) {
  const slices = element("div", { class: "scroll", tabindex: "0", "aria-label": "Slices" });
  const rows = element("div", { class: "scroll", tabindex: "0", "aria-label": "Events" });
  const said = element("p", { role: "status", class: "quiet" });
  const from = element("input", { id: "from", size: "26", value: options.get("from") ?? "newest" });
  const slice = element("select", { id: "slice" });
  const most = element("input", { id: "most", type: "number", min: "1", max: String(EVENTS_MAX), value: options.get("n") ?? "50" });
  const key = element("input", { id: "key", type: "search", autocomplete: "off", value: options.get("key") ?? "" });
  const text = element("input", { id: "text", type: "search", autocomplete: "off", value: options.get("text") ?? "" });
  const where = element("input", {
    id: "where", type: "search", size: "30", autocomplete: "off", spellcheck: "false",
    value: options.get("where") ?? "", placeholder: "$.delay>15 and header.source=gate",
  });
  const further = element("button", { type: "button", hidden: "" }, "Look further");
  const live = element("input", { id: "live", type: "checkbox" });
  live.checked = options.get("live") === "1";
  const form = element("form", { class: "bar" }, [
    element("label", { for: "from" }, ["from: newest, earliest, a time, a cursor", from]),
    element("label", { for: "slice" }, ["slice", slice]),
    element("label", { for: "most" }, ["events", most]),
    element("label", { for: "key" }, ["key has", key]),
    element("label", { for: "text" }, ["value has", text]),
    ...(isGrave(topic) ? [] : [element("label", { for: "where" }, ["key, header.NAME, $.place: = != ~ < >", where])]),
    element("label", { for: "live" }, ["follow", live]),
    element("button", {}, "Show"),
  ]);
  const produced = element("p", { role: "status" });
  const newKey = element("input", { id: "new-key" });
  const newValue = element("textarea", { id: "new-value" }, '{"hello": "world"}');
  const produce = element("form", {}, [
    element("p", {}, element("label", { for: "new-key" }, ["Key (may be empty) ", newKey])),
    element("p", {}, element("label", { for: "new-value" }, ["Value: JSON, or any text", newValue])),
    element("p", {}, element("button", {}, "Produce it")),
  ]);
  const making = element("details", {}, [element("summary", {}, "Produce an event"), produce, produced]);
  const desk = lettersOf(topic, { ask, may, refresh: (drawn) => (drawn ? draw() : safely(show)()) });
  const settings = element("p", { class: "quiet" });
  const trend = element("div", { class: "charts" });
  fill(main, [
    element("h2", {}, [element("a", { href: "#topics" }, "Topics"), ` / ${topic}`]),
    element("p", { class: "quiet" }, isGrave(topic)
      ? "What queues have given up, with the reason. Choose some, and send them again to where they came from, or drop them."
      : element("a", { href: `/console/listen.html#${topic}` }, "Each event as it comes")),
    settings, trend, form, desk.bar, desk.said, said, rows, further,
    element("details", {}, [element("summary", {}, "Slices"), slices]),
    making,
  ]);
  whoAmI().then(() => {
    making.hidden = !may("produce", topic);
    if (found.length) draw();
  });
  let search = null; // What is looked for, where something is.
  const meant = () => (isGrave(topic) ? [] : conditionsOf(key.value, text.value, where.value));
  let found = [];
  let next = null; // By slice where to go on, while it follows.
  let listed = [];

  const draw = () => {
    const here = isGrave(topic); // Letters are told from marks, so all of them are read.
    const [inKey, inValue] = [key.value.toLowerCase(), text.value.toLowerCase()];
    const kept = !here ? found : found.filter((each) =>
      (each.key ?? "").toLowerCase().includes(inKey) && each.shown.toLowerCase().includes(inValue));
    const dead = isGrave(topic) || found.some(isLetter);
    for (const each of [desk.bar, desk.said]) each.hidden = !dead;
    if (dead) {
      const drawn = desk.draw(kept.slice(0, EVENTS_MAX), marksOf(found));
      said.textContent = drawn.shown ? `${count(drawn.shown)} of the letters that were read` : "No dead letters here.";
      fill(rows, [drawn.table]);
      return;
    }
    const headed = kept.some((each) => each.headers);
    const left = search ? search.left() : 0n;
    said.textContent = search
      ? `${count(kept.length)} event${kept.length === 1 ? "" : "s"}, ${search.looked() ? `of ${count(Number(search.looked()))} ` : "of those "}that were looked at${left > 0n ? `; ${count(Number(left))} more are there` : ""}`
      : `${count(kept.length)} of ${count(found.length)} events that were read`;
    if (kept.length > EVENTS_MAX) said.textContent += `; the newest ${EVENTS_MAX} of them`;
    further.hidden = left <= 0n;
    const offered = may("produce", topic);
    fill(rows, [
      table(
        ["time", "slice", "#offset", "key", "value", ...(headed ? ["headers"] : []), ...(offered ? ["again"] : [])],
        kept.slice(0, EVENTS_MAX).map((each) => [
          when(each.timestamp), each.slice, each.offset,
          element("span", { title: each.key ?? "" }, each.key ?? "–"),
          short(each.shown), ...(headed ? [short(each.headers)] : []), ...(offered ? [againOf(each)] : []),
        ]),
        { 3: "key", 4: "value", ...(headed ? { 5: "value" } : {}) }, "events",
      ),
    ]);
  };

  const againOf = (event) => {
    const button = element("button", { type: "button", "aria-label": `Send offset ${event.offset} of slice ${event.slice} again` }, "Send again …");
    button.addEventListener("click", safely(async () => {
      const what = [
        element("p", {}, `It is produced to ${topic} once more, with key, value and headers as they are: everybody who reads there gets it again.`),
        table(["key", "value"], [[event.key ?? "–", short(event.shown)]], { 0: "key", 1: "value" }),
      ];
      if (!await sure("Send this event again?", what, "Send again")) return;
      const sum = await ask(`/v1/topic/${topic}/resend`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify({ events: [{ token: event.token, slice: event.rangeIndex, offset: event.offset }] }),
      });
      said.textContent = inWords({ ...sum, marked: sum.done }, `on stable storage in ${topic} again`, "event");
    }));
    return button;
  };

  const read = async (one, cursor, to) => {
    const asked = new URLSearchParams({ from: cursor, maxBytes: meant().length ? LOOK_BYTES : READ_BYTES });
    for (const each of meant()) asked.append("where", each);
    if (to !== undefined) asked.set("to", to);
    const answer = await ask(
      `/v1/topic/${topic}/slices/${one.token}/${one.rangeIndex}/events?${asked}`,
      { headers: { Accept: "application/x-ndjson" }, raw: true },
    );
    const at = answer.headers.get("Barco-Next-Cursor") ?? cursor;
    const lines = answer.status === 200 ? (await answer.text()).split("\n").filter(Boolean) : [];
    return { next: at, events: lines.map((line) => eventOf(line, one)) };
  };

  // The last events of a slice: of large ones fewer than asked for, and never without the newest.
  const readNewest = async (one, number) => {
    const [first, end] = [BigInt(one.startOffset), BigInt(one.endOffset)];
    for (let most = number; ; most = Math.ceil(most / 4)) {
      const start = end - BigInt(most) > first ? end - BigInt(most) : first;
      const part = await read(one, cursorOf(start));
      if (most === 1 || offsetOf(part.next) >= end) return part;
    }
  };

  const wanted = () => listed.filter((each) => slice.value === "all" || each.name === slice.value);

  const show = async () => {
    listed = (await ask(`/v1/topic/${topic}/slices`)).slices.map((each, index) => ({ ...each, name: String(index) }));
    const names = ["all", ...listed.map((each) => each.name)];
    if (slice.dataset.names !== names.join()) {
      const chosen = options.get("slice") ?? "all";
      slice.dataset.names = names.join();
      fill(slice, names.map((each) => element("option", {}, each)));
      if (names.includes(chosen)) slice.value = chosen;
    }
    fill(slices, [
      table(
        ["slice", "leader", "#first", "#end", "last event"],
        listed.map((each) => [
          each.name, each.endpoint, each.startOffset, each.endOffset,
          each.lastTimestamp ? when(each.lastTimestamp) : "–",
        ]),
      ),
    ]);
    const number = Math.min(EVENTS_MAX, Math.max(1, Number(most.value) || 50));
    const some = wanted();
    const share = Math.max(1, Math.ceil(number / Math.max(1, some.length)));
    const place = placeOf(from.value);
    next = Object.fromEntries(some.map((one) => [one.name, one.end]));
    search = meant().length ? searchOf(some, place, read) : null;
    if (search) {
      said.textContent = "Looking …";
      await lookOn();
      return;
    }
    const told = await Promise.allSettled(some.map(async (one) => {
      const part = place === "newest" ? await readNewest(one, number) : await read(one, place);
      next[one.name] = place === "newest" ? part.next : one.end;
      return place === "newest" ? part.events : part.events.slice(0, share);
    }));
    const failed = told.find((each) => each.status === "rejected");
    found = told.flatMap((each) => each.value ?? []).sort(newestFirst).slice(0, number);
    draw();
    if (failed) said.textContent = failed.reason.message;
  };

  const lookOn = async () => {
    const number = Math.min(EVENTS_MAX, Math.max(1, Number(most.value) || 50));
    const of = search;
    await of.more(number);
    if (of !== search) return; // Something else is looked for meanwhile.
    found = of.found().sort(newestFirst);
    draw();
  };
  further.addEventListener("click", () => safely(async () => {
    said.textContent = "Looking …";
    await lookOn();
  })());

  const ends = []; // [second, events that it has ever had]
  let hour = [];
  const drawTrend = (now) => {
    const kept = sumOf(now, "endOffset") - sumOf(now, "startOffset");
    fill(trend, [chart("events/s, by their times", growthOf([...hour, ...ends]), rateOf, `${count(kept)} events are there`)]);
  };
  hourOf(topic).then((points) => { hour = points; }).catch(() => {});
  // One question says which slices have more: only those are read.
  const follow = async (now) => {
    const grown = wanted().filter((one) => {
      const there = now[Number(one.name)];
      return there && BigInt(there.endOffset) > offsetOf(next[one.name] ?? one.end);
    });
    const more = await Promise.allSettled(grown.map(async (one) => {
      const told = await read(one, next[one.name] ?? one.end);
      next[one.name] = told.next;
      return told.events;
    }));
    const fresh = more.flatMap((each) => each.value ?? []);
    if (!fresh.length) return;
    found = [...fresh.sort(newestFirst), ...found].slice(0, 4 * EVENTS_MAX);
    draw();
  };

  const remember = () => {
    const kept = new URLSearchParams({ from: from.value, n: most.value, slice: slice.value });
    if (key.value) kept.set("key", key.value);
    if (text.value) kept.set("text", text.value);
    if (where.value) kept.set("where", where.value);
    if (live.checked) kept.set("live", "1");
    window.history.replaceState(null, "", `#topic/${topic}?${kept}`);
  };

  const safely = (doing) => async (event) => {
    event?.preventDefault();
    try {
      await doing();
    } catch (error) {
      said.textContent = error.message;
    }
  };
  form.addEventListener("submit", safely(async () => { remember(); await show(); }));
  for (const input of [key, text]) input.addEventListener("input", () => { remember(); if (isGrave(topic)) draw(); });
  live.addEventListener("change", remember);
  produce.addEventListener("submit", async (event) => {
    event.preventDefault();
    const query = newKey.value ? `?partitionKey=${encodeURIComponent(newKey.value)}` : "";
    try {
      const json = isJson(newValue.value);
      const told = await ask(`/v1/topic/${topic}/messages${query}`, {
        method: "POST",
        headers: { "Content-Type": json ? "application/json" : "application/octet-stream" },
        body: newValue.value,
      });
      produced.textContent = `On stable storage at offset ${told?.startOffset ?? ""}.`;
    } catch (error) {
      produced.textContent = error.message;
    }
  });
  safely(show)();
  describe(topic).then((words) => { settings.textContent = words; }).catch(() => {});
  const update = async () => {
    const { slices: now } = await lately(`/v1/topic/${topic}/slices`);
    ends.push([Date.now() / 1000, sumOf(now, "endOffset")]);
    if (ends.length > HISTORY) ends.shift();
    drawTrend(now);
    if (live.checked && next) await follow(now);
  };
  return { update };
}

const sumOf = (slices, name) => slices.reduce((sum, each) => sum + Number(each[name] ?? each.endOffset), 0);

// How a topic is set, and how much it takes, in words.
async function describe(topic) {
  const [told, { slices }] = await Promise.all([
    ask(`/v1/topics/${topic}`), ask(`/v1/topic/${topic}/slices?splitBytes=${2 ** 62}`),
  ]);
  const size = slices.reduce((sum, each) => sum + (each.bytes ?? 0), 0);
  return [
    `${bytes(size)} as it is stored`,
    told.retentionHours ? `kept ${told.retentionHours} hours` : "kept as long as the broker keeps any",
    ...(told.retentionBytes ? [`and ${bytes(told.retentionBytes)} at most`] : []),
    told.compression === "none" ? "not compressed" : `compressed with ${told.compression}`,
    ...(told.timestamps === "any" ? ["any timestamps"] : []),
    told.schemaCheck === "off" ? "values not checked" : `values checked: ${told.schemaCheck}`,
    ...(told.createdAt ? [`made ${when(told.createdAt)}`] : []),
  ].join("; ");
}

// How many events a topic had at times of the hour before, which the broker finds by theirs.
async function hourOf(topic) {
  const now = Date.now() / 1000;
  const moments = Array.from({ length: STEPS }, (_, step) => now - HOUR * (1 - step / STEPS));
  const told = await Promise.all(moments.map((at) => ask(`/v1/topic/${topic}/slices?at=timestamp:${Math.round(at * 1e6)}`)));
  return told.map(({ slices }, index) => [moments[index], sumOf(slices, "atOffset")]);
}

const rateOf = (value) => (value && value < 10 ? value.toPrecision(2) : count(value));

// Growth from point to point, a second.
const growthOf = (points) => points.slice(1).map(([at, value], index) =>
  [at, Math.max(0, value - points[index][1]) / Math.max(at - points[index][0], 1e-3)]);

const newestFirst = (a, b) => b.timestamp - a.timestamp || Number(b.offset) - Number(a.offset);

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const short = (text) => (text.length > 2000 ? `${text.slice(0, 2000)} …` : text);

function eventOf(line, one) {
  const told = parse(line);
  const heads = Object.fromEntries(Object.entries(told.headers ?? {}).map(([name, value]) => [name, textOf(value)]));
  return {
    ...told, slice: one.name, shown: textOf(told.value), heads,
    key: told.key === null ? null : textOf(told.key),
    headers: Object.entries(heads).map((each) => each.join(": ")).join("\n"),
  };
}

// How long the broker's certificates are good, where it has some.
async function certificates() {
  const status = await lately("/status").catch(() => ({}));
  const told = [["for clients", status.tls], ["between brokers", status.mutualTls]].filter(([, each]) => each);
  return told.length
    ? table(["certificate of this broker", "good until"], told.map(([name, each]) => [name, each.expires]))
    : element("p", { class: "quiet" }, "This broker speaks without TLS, or you may not see how.");
}

function usersPage() {
  const rows = element("div", { class: "scroll", tabindex: "0", "aria-label": "Users" });
  const sealed = element("div");
  fill(main, [element("h2", {}, "Users"), rows, element("h3", {}, "Certificates"), sealed]);
  certificates().then((found) => fill(sealed, [found]));
  const update = async () => {
    const { users } = await ask("/v1/users");
    fill(rows, [
      users.length
        ? table(
          ["user", "may", "#requests/s", "#bytes/s"],
          users.map((each) => [
            each.name ?? each.user, (each.grants ?? []).join(", "),
            each.requestsPerSecond || "–", each.bytesPerSecond ? bytes(each.bytesPerSecond) : "–",
          ]),
        )
        : element("p", { class: "quiet" }, "Nobody needs a token here, or there are no users."),
    ]);
  };
  return { update };
}

// --- Which page -----------------------------------------------------------------------------------

async function open() {
  const [path, query] = location.hash.slice(1).split("?");
  const [name, ...rest] = path.split("/");
  let given = rest.join("/");
  try {
    given = decodeURIComponent(given);
  } catch {
    given = "";
  }
  const pages = { ring: ringPage, topics: topicsPage, groups: groupsPage, users: usersPage, jobs: () => jobsPage(main, lately), audit: () => auditPage(main, ask, new URLSearchParams(query ?? "")) };
  let page = pages[name] ?? ringPage;
  if (name === "group" && given) page = () => groupPage(given);
  if (name === "topic" && NAME.test(given)) page = () => topicPage(given, new URLSearchParams(query ?? ""));
  const current = { topic: "topics", group: "groups" }[name] ?? (name || "ring");
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${current}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `barco: ${given || current}`;
  const opened = page();
  shown = {
    ring: opened.ring,
    update: async () => {
      try {
        await opened.update?.();
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
        fill(main, [element("p", { class: "bad" }, error.message)]);
        shown = null;
      }
    },
  };
  await shown.update();
}

// What goes wrong in a page's own code is told there: an empty page says nothing.
function opening() {
  open().catch((error) => fill(main, [element("p", { class: "bad" }, `This page cannot be shown: ${error.message}`)]));
}

whoAmI();
window.addEventListener("hashchange", opening);
document.addEventListener("visibilitychange", () => { if (!document.hidden) look().catch(() => {}); });
opening();
run();
