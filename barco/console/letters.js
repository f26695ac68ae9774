// Dead letters: what a queue has given up. Chosen ones are sent again or dropped; a mark behind each
// says so then, which is an event of the same slice, and the letter is not listed any more.

import { element, fill, table, when } from "/console/draw.js";

const PREFIX = "barco-dead-"; // Of the headers that tell of a death.
const SUFFIX = ".dead"; // What a topic's name ends with where letters of another one lie.
const AT_ONCE = 100; // Letters of one request.
const SHOWN = 5; // Of those that are chosen, before anything is done.
const SHORT = 200;

const told = (event, name) => event.heads[PREFIX + name];
const placeOf = (event) => `${event.slice}/${event.offset}`;
const isMark = (event) => told(event, "mark") !== undefined;
const some = (number) => `${number} letter${number === 1 ? "" : "s"}`;

export const isGrave = (topic) => topic.endsWith(SUFFIX);
export const isLetter = (event) => Object.keys(event.heads).some((name) => name.startsWith(PREFIX));

// What letters were given up by, and what has become of each, by its place.
export function marksOf(events) {
  return new Map(events.filter(isMark).map((each) => [`${each.slice}/${told(each, "offset")}`, told(each, "mark")]));
}

// Asks whether that is meant; nothing else can be done meanwhile.
export function sure(title, what, word) {
  const dialog = document.getElementById("sure");
  document.getElementById("sure-title").textContent = title;
  fill(document.getElementById("sure-what"), what);
  document.getElementById("sure-yes").textContent = word;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

// What may be done with the letters of a topic. refresh: reads them again.
export function lettersOf(topic, { ask, may, refresh }) {
  const chosen = new Set();
  let listed = [];
  const named = isGrave(topic) ? topic.slice(0, -SUFFIX.length) : "";
  const originOf = (event) => told(event, "topic") ?? named;
  const said = element("p", { role: "status" });
  const done = element("input", { id: "done", type: "checkbox" });
  const resend = element("button", { type: "button" }, "Send again …");
  const drop = element("button", { type: "button" }, "Drop …");
  const all = element("button", { type: "button" }, "Choose all");
  const bar = element("form", { class: "bar" }, [
    all, resend, drop,
    element("label", { for: "done" }, ["those done with, too", done]),
  ]);
  bar.addEventListener("submit", (event) => event.preventDefault());
  const offer = () => {
    const origins = new Set(listed.map(originOf));
    resend.hidden = ![...origins].some((each) => each && may("produce", each));
    drop.hidden = !may("produce", topic);
    all.hidden = resend.hidden && drop.hidden;
    const count = listed.filter((each) => chosen.has(placeOf(each))).length;
    for (const button of [resend, drop]) button.disabled = count === 0;
    all.textContent = count && count === listed.length ? "Choose none" : "Choose all";
  };

  // The table of these events, without marks; what they are about is told in columns of its own.
  const draw = (events, marks) => {
    const shown = events.filter((each) => !isMark(each) && (done.checked || !marks.has(placeOf(each))));
    listed = shown.filter((each) => !marks.has(placeOf(each)));
    for (const place of chosen) if (!listed.some((each) => placeOf(each) === place)) chosen.delete(place);
    offer();
    return {
      shown: shown.length,
      table: table(
        ["choose", "given up by", "#times", "why", "key", "value", "time", "slice", "#offset", "other headers"],
        shown.map((each) => [
          marks.get(placeOf(each)) ?? box(each), told(each, "group") ?? originOf(each), told(each, "count"), told(each, "reason"),
          each.key ?? "–", short(each.shown), when(each.timestamp), each.slice, each.offset, rest(each),
        ]),
        { 3: "why", 4: "key", 5: "value", 9: "value" }, "events",
      ),
    };
  };

  const box = (event) => {
    const place = placeOf(event);
    const made = element("input", { type: "checkbox", "aria-label": `choose offset ${event.offset} of slice ${event.slice}` });
    made.checked = chosen.has(place);
    made.addEventListener("change", () => {
      if (made.checked) chosen.add(place);
      else chosen.delete(place);
      offer();
    });
    return made;
  };

  const act = async (action) => {
    const picked = listed.filter((each) => chosen.has(placeOf(each)));
    const byOrigin = Map.groupBy ? Map.groupBy(picked, originOf) : grouped(picked, originOf);
    if (action === "resend" && byOrigin.delete("")) said.textContent = "Of some nobody knows where they came from.";
    const where = [...byOrigin.keys()].join(", ");
    const again = action === "resend";
    const what = [
      element("p", {}, again
        ? `Each is produced to ${where}, with key, value and headers as they were: everybody who reads there gets it.`
        : `Each gets a mark, and is not listed any more, neither here nor by barco dead. It stays in ${topic} for as long as that keeps events.`),
      table(["why", "key", "value"], picked.slice(0, SHOWN).map((each) => [told(each, "reason"), each.key ?? "–", short(each.shown)]), { 0: "why", 1: "key", 2: "value" }),
      ...(picked.length > SHOWN ? [element("p", { class: "quiet" }, `and ${picked.length - SHOWN} more`)] : []),
    ];
    const title = again ? `Send ${some(picked.length)} again?` : `Drop ${some(picked.length)}?`;
    if (!await sure(title, what, again ? "Send again" : "Drop")) return;
    const sum = { done: 0, others: 0, gone: 0, marked: 0, left: 0, why: "" };
    try {
      for (const [origin, letters] of byOrigin) {
        for (let at = 0; at < letters.length; at += AT_ONCE) {
          const answer = await ask(`/v1/topic/${origin || topic}/dead/${action}`, {
            method: "POST",
            headers: { "Content-Type": "application/json" },
            body: JSON.stringify({
              letters: letters.slice(at, at + AT_ONCE).map(({ token, rangeIndex, offset }) => ({ token, slice: rangeIndex, offset })),
              dead: topic,
            }),
          });
          for (const name of Object.keys(sum)) sum[name] += answer[name];
        }
      }
    } catch (error) {
      sum.why = error.message;
    }
    said.textContent = inWords(sum, again ? `on stable storage in ${where}` : "dropped");
    await refresh();
  };
  all.addEventListener("click", () => {
    const none = all.textContent === "Choose none";
    chosen.clear();
    if (!none) for (const each of listed) chosen.add(placeOf(each));
    refresh(true);
  });
  resend.addEventListener("click", () => act("resend"));
  drop.addEventListener("click", () => act("drop"));
  done.addEventListener("change", () => refresh(true));
  return { bar, said, draw };
}

// What has been done, as people say it.
export function inWords(sum, how, thing = "letter") {
  const some = (number) => `${number} ${thing}${number === 1 ? "" : "s"}`;
  const words = [`${some(sum.done)} ${sum.done === 1 ? "is" : "are"} ${how}.`];
  if (sum.marked < sum.done) words.push("They stay in this list: only who may produce here marks them.");
  if (sum.others) words.push(`${some(sum.others)} came from another topic, and went nowhere.`);
  if (sum.gone) words.push(`${some(sum.gone)} could not be found any more.`);
  if (sum.why) words.push(`Then it ended: ${sum.why}${sum.left ? ` ${some(sum.left)} not come to.` : ""}`);
  return words.join(" ");
}

function grouped(events, key) {
  const found = new Map();
  for (const each of events) found.set(key(each), [...(found.get(key(each)) ?? []), each]);
  return found;
}

const short = (text) => (text.length > SHORT ? `${text.slice(0, SHORT)} …` : text);

const rest = (event) => Object.entries(event.heads)
  .filter(([name]) => !name.startsWith(PREFIX)).map(([name, value]) => `${name}: ${value}`).join("\n");
