// Elements, tables, small charts, and how figures are spelt.

const SVG = "http://www.w3.org/2000/svg";
const BLANK = "\u00a0"; // A figure and its unit stay on one line.
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

// Children are nodes and texts; a text never becomes markup.
export function element(name, attributes = {}, children = []) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...[children].flat());
  return made;
}

export function shape(name, attributes = {}, children = []) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...[children].flat());
  return made;
}

export function fill(parent, children) {
  parent.replaceChildren(...children);
}

// Columns whose name begins with # are numbers. classes: by column; kept: of the table.
export function table(columns, rows, classes = {}, kept = "") {
  const numeric = columns.map((each) => each.startsWith("#"));
  const name = (each) => each.replace(/^#/, "");
  const kind = (index) => (numeric[index] ? { class: "number" } : classes[index] ? { class: classes[index] } : {});
  return element("table", kept ? { class: kept } : {}, [
    element("thead", {}, element("tr", {}, columns.map((each, index) =>
      element("th", { scope: "col", ...(numeric[index] ? { class: "number" } : {}) }, name(each))))),
    element("tbody", {}, rows.map((row) => element("tr", {}, row.map((cell, index) =>
      element("td", kind(index), cell instanceof Node ? cell : String(cell ?? "–")))))),
  ]);
}

const ROWS_A_FRAME = 50;

// Until what was done is shown: whoever scrolls meanwhile is not held up by all of it at once.
export function frame() {
  return new Promise((resolve) => {
    requestAnimationFrame(() => setTimeout(resolve, 0));
    setTimeout(resolve, 100); // A page that cannot be seen has no frames.
  });
}

// A table that is shown again and again: only what has changed is touched, and many new rows are made
// some at a time. A cell is a text, a number, or {text, make}: what stands for it, and how it is made.
export function lasting(columns) {
  const node = table(columns, []);
  const body = node.querySelector("tbody");
  const classes = columns.map((each) => (each.startsWith("#") ? { class: "number" } : {}));
  const kept = []; // Of each row its cells, and what they show.
  let wanted = [];
  let coming = false;
  const put = (td, cell) => (cell?.make ? td.replaceChildren(cell.make()) : (td.textContent = String(cell ?? "–")));
  const textOfCell = (cell) => (cell?.make ? cell.text : String(cell ?? "–"));
  const grow = () => {
    coming = false;
    for (let left = ROWS_A_FRAME; left > 0 && kept.length < wanted.length; left--) {
      const row = wanted[kept.length];
      const cells = row.map((cell, index) => {
        const td = element("td", classes[index]);
        put(td, cell);
        return td;
      });
      const tr = element("tr", {}, cells);
      kept.push({ tr, cells, texts: row.map(textOfCell) });
      body.append(tr);
    }
    if (kept.length < wanted.length && !coming) {
      coming = true;
      requestAnimationFrame(grow);
    }
  };
  const show = (rows) => {
    wanted = rows;
    while (kept.length > rows.length) kept.pop().tr.remove();
    kept.forEach(({ cells, texts }, at) => rows[at].forEach((cell, index) => {
      const text = textOfCell(cell);
      if (text === texts[index]) return;
      texts[index] = text;
      put(cells[index], cell);
    }));
    if (!coming) grow();
  };
  return { node, show };
}

// An event as a line of JSON. A number of its value that this language would round stays as it was
// written, where the browser can do that.
export function parse(line) {
  const event = JSON.parse(line, (_, value, { source } = {}) =>
    typeof value === "number" && JSON.rawJSON && source !== undefined && source !== String(value)
      ? JSON.rawJSON(source) : value);
  return { ...event, timestamp: Number(event.timestamp?.rawJSON ?? event.timestamp) };
}

// Of a key or a value: bytes that are no text came as {"base64": ...}.
export function textOf(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

const NUMBERS = new Intl.NumberFormat("en"); // One: to make it takes longer than to spell a hundred.

export function count(number) {
  if (number === null || number === undefined) return "–";
  return NUMBERS.format(Math.round(number));
}

export function bytes(number) {
  if (number === null || number === undefined) return "–";
  let unit = 0;
  let left = number;
  while (left >= 1024 && unit < UNITS.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${left.toFixed(unit ? 1 : 0)}${BLANK}${UNITS[unit]}`;
}

// Seconds; 0 is none.
export function duration(seconds) {
  if (!seconds) return "–";
  if (seconds < 1e-3) return `${Math.max(1, Math.round(seconds * 1e6))}${BLANK}µs`;
  return seconds < 1 ? `${(seconds * 1e3).toPrecision(3)}${BLANK}ms` : `${seconds.toPrecision(3)}${BLANK}s`;
}

// Microseconds since 1970, in the reader's own time.
export function when(micros) {
  const moment = new Date(Number(micros) / 1000);
  if (Number.isNaN(moment.getTime())) return `${micros} µs`;
  const two = (number, width = 2) => String(number).padStart(width, "0");
  return `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())} `
    + `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}.${two(moment.getMilliseconds(), 3)}`;
}

export const HOUR = 3600; // Seconds that a chart goes back at most.

// A line over time, points being [second, value]. Of many that fall on one place the highest is drawn.
function line(points, wide, high) {
  const picture = shape("svg", { viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  if (points.length < 2) return picture;
  const [from, to] = [points[0][0], points.at(-1)[0]];
  const tops = new Map();
  let most = 1e-9;
  for (const [at, value] of points) {
    const x = Math.round((wide * (at - from)) / Math.max(to - from, 1e-3));
    if (!(tops.get(x) >= value)) tops.set(x, value);
    if (value > most) most = value;
  }
  const spots = [...tops].map(([x, value]) => `${x},${(high - 2 - (high - 4) * (value / most)).toFixed(1)}`);
  picture.append(shape("path", { d: `M${spots.join("L")}` }));
  return picture;
}

export function lastHour(points) {
  const from = (points.at(-1)?.[0] ?? 0) - HOUR;
  return points[0]?.[0] >= from ? points : points.filter(([at]) => at >= from);
}

// One figure over time, points being [second, value]. more: another figure of now.
export function chart(name, points, spell, more = "") {
  const shown = lastHour(points);
  const most = shown.reduce((top, [, value]) => Math.max(top, value), 0);
  return element("div", { class: "chart" }, [
    element("p", {}, name), element("strong", {}, shown.length ? spell(shown.at(-1)[1]) : "–"), line(shown, 300, 48),
    element("p", {}, shown.length ? [more, `at most ${spell(most)}`, since(shown)].filter(Boolean).join(", ") : "not known yet"),
  ]);
}

function since(points) {
  const minutes = Math.round((points.at(-1)[0] - points[0][0]) / 60);
  return minutes ? `in ${minutes} min` : "";
}

// In a row of a table.
export function spark(points) {
  return element("span", { class: "spark" }, line(lastHour(points), 90, 18));
}
