// The ring as a picture: outside who leads which slices, inside the copies.

import { shape } from "/console/draw.js";

const HUES = [215, 35, 155, 275, 95, 185, 325, 60, 245, 5, 125, 305]; // Red, which looks like a fault, comes late.
const OUTER = [150, 122];
const INNER = [116, 106];

export function spans(first, slices) {
  return slices === 1 ? String(first) : `${first}–${first + slices - 1}`;
}

// Brokers next to each other are told apart, whatever their number.
// Those of a dozen more are a little off.
export function colour(ordinal) {
  return `hsl(${(HUES[ordinal % HUES.length] + Math.floor(ordinal / HUES.length) * 11) % 360} 55% 52%)`;
}

export function ring(topology) {
  const slices = topology.ringSize * topology.slicesPerRange;
  const up = Object.fromEntries(topology.brokers.map((each) => [each.ordinal, (each.state ?? "alive") === "alive"]));
  const few = topology.brokers.length <= 24;
  const parts = [];
  const heard = new Set();
  for (const route of topology.routes) {
    const [from, to] = [route.first / slices, (route.first + route.slices) / slices];
    for (let slice = route.first; slice < route.first + route.slices; slice++) heard.add(slice);
    const led = route.leader !== null && up[route.leader] !== false;
    const words = led
      ? `slices ${spans(route.first, route.slices)}: broker ${route.leader} leads, members ${route.members.join(", ")}`
      : `slices ${spans(route.first, route.slices)}: nobody leads`;
    const own = shape("path", {
      d: band(from, to, OUTER), ...(led ? { fill: colour(route.leader) } : { class: "empty" }),
    }, shape("title", {}, words));
    parts.push(own);
    const others = route.members.filter((each) => each !== route.leader);
    others.forEach((member, index) => {
      const [outer, inner] = INNER;
      const shift = index * 13;
      parts.push(shape("path", {
        d: band(from, to, [outer - shift, inner - shift]),
        ...(up[member] === false ? { class: "empty" } : { fill: colour(member), "fill-opacity": "0.55" }),
      }, shape("title", {}, `broker ${member} has a copy${up[member] === false ? " and is down" : ""}`)));
    });
    if (few && led) parts.push(...label((from + to) / 2, 136, String(route.leader)));
  }
  const missing = slices - heard.size;
  const down = topology.brokers.filter((each) => up[each.ordinal] === false).length;
  const summary = `${topology.brokers.length} brokers, ${topology.routes.length} ranges, ${slices} slices`;
  parts.push(shape("text", { x: 0, y: -12, class: "middle" }, `${topology.brokers.length} broker${topology.brokers.length === 1 ? "" : "s"}`));
  parts.push(shape("text", { x: 0, y: 6 }, `${topology.routes.length} ranges, ${slices} slices`));
  if (down || missing) parts.push(shape("text", { x: 0, y: 24 }, `${down} down${missing ? `, ${missing} slices unheard of` : ""}`));
  return shape("svg", { class: "ring", viewBox: "-160 -160 320 320", role: "img", "aria-label": `The ring: ${summary}` }, parts);
}

// Of a broker, beside its number in a table.
export function swatch(ordinal) {
  const square = shape("rect", { width: 10, height: 10, rx: 2, fill: colour(ordinal) });
  return shape("svg", { class: "swatch", viewBox: "0 0 10 10", "aria-hidden": "true" }, square);
}

function at(turn, radius) {
  const angle = 2 * Math.PI * turn - Math.PI / 2;
  return [(radius * Math.cos(angle)).toFixed(2), (radius * Math.sin(angle)).toFixed(2)];
}

// A part of a ring between two turns (0 to 1); a little is left free, so that neighbours are seen.
function band(from, to, [outer, inner]) {
  const gap = Math.min(0.0015, (to - from) / 4);
  const [a, b] = [from + gap, Math.max(to - gap, from + gap)];
  const large = b - a > 0.5 ? 1 : 0;
  const [x0, y0] = at(a, outer);
  const [x1, y1] = at(b, outer);
  const [x2, y2] = at(b, inner);
  const [x3, y3] = at(a, inner);
  return `M${x0} ${y0}A${outer} ${outer} 0 ${large} 1 ${x1} ${y1}L${x2} ${y2}A${inner} ${inner} 0 ${large} 0 ${x3} ${y3}Z`;
}

function label(turn, radius, text) {
  const [x, y] = at(turn, radius);
  return [shape("circle", { cx: x, cy: y, r: 10, class: "disc" }), shape("text", { x, y }, text)];
}
