// Who writes in batches and who reads without a group: Spark's jobs, and others that say so. And who
// was refused, and who administered.

import { bytes, count, element, fill, table, when } from "/console/draw.js";

const LINES = 500;

const region = (label) => element("div", { class: "scroll", tabindex: "0", "aria-label": label });
const quiet = (text) => element("p", { class: "quiet" }, text);

const STATES = { staged: "is writing", prepared: "is about to commit", committed: "committed" };

export function jobsPage(main, lately) {
  const [writers, readers] = [region("Writers"), region("Readers")];
  const said = element("p", { class: "quiet" });
  fill(main, [
    element("h2", {}, "Writers: all of a batch is seen at once, and once"), writers,
    element("h3", {}, "Readers without a group"), readers, said,
  ]);
  const links = (topics) => element("span", {}, topics.flatMap((each, index) =>
    [...(index ? [", "] : []), element("a", { href: `#topic/${each}` }, each)]));
  const update = async () => {
    const told = await lately("/v1/jobs");
    said.textContent = told.silent ? `${told.silent} processes did not answer.` : "";
    fill(writers, [told.writers.length
      ? table(
        ["writer", "#batch", "state", "#rows", "staged", "#tasks", "topics", "when"],
        told.writers.map((each) => [
          each.writer, each.batch, STATES[each.state] ?? each.state, count(each.rows),
          each.bytes === undefined ? "–" : bytes(each.bytes), each.attempts ?? "–", links(each.topics),
          each.at ? when(each.at) : `${Math.round(each.idleSeconds)} s ago`,
        ]),
      )
      : quiet("Nobody has written in batches of late: Spark does, and pipelines.")]);
    fill(readers, [told.readers.length
      ? table(
        ["reader", "#batch", "#rows", "#rows in all", "topic", "when"],
        told.readers.map((each) => [
          each.reader, each.batch || "–", count(each.rows), count(each.total), links([each.topic]), when(each.at),
        ]),
      )
      : quiet("Nobody has read so of late: Spark does.")]);
  };
  return { update };
}

export function auditPage(main, ask, options) {
  const lines = region("Lines");
  const said = element("p", { role: "status", class: "quiet" });
  const filter = element("input", { type: "search", id: "filter", autocomplete: "off", value: options.get("has") ?? "" });
  const form = element("form", { class: "bar" }, [
    element("label", { for: "filter" }, ["user, path, reason or address has", filter]),
  ]);
  fill(main, [element("h2", {}, "Who was refused, and who administered"), form, said, lines]);
  let told = null;
  const draw = () => {
    if (!told) return;
    const wanted = filter.value.toLowerCase();
    const kept = told.lines.filter((each) =>
      [each.user, each.path, each.why ?? "", each.from ?? "", each.what].join("\n").toLowerCase().includes(wanted));
    said.textContent = told.audited
      ? `${count(kept.length)} of the last ${count(told.lines.length)} lines${told.silent ? `; ${told.silent} processes did not answer` : ""}`
      : "Nobody needs a token here, so nobody is refused, and nothing is noted.";
    fill(lines, kept.length
      ? [table(
        ["time", "#broker", "user", "what", "#status", "call", "why", "from", "id"],
        kept.map((each) => [
          when(each.at), each.broker, each.user || "–", each.what, each.status,
          `${each.method} ${each.path}`, each.why ?? "–", each.from ?? "–", each.request,
        ]),
        { 6: "why" },
      )]
      : []);
  };
  form.addEventListener("submit", (event) => event.preventDefault());
  filter.addEventListener("input", () => {
    window.history.replaceState(null, "", filter.value ? `#audit?${new URLSearchParams({ has: filter.value })}` : "#audit");
    draw();
  });
  let looks = 0;
  const update = async () => {
    if (told && looks++ % 3) return; // It is for people who read.
    told = await ask(`/v1/audit?max=${LINES}`);
    draw();
  };
  return { update };
}
