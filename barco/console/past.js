// How it was: what the looks of this page have found, and before them what the brokers have kept of the
// last hour. Points are [second, value].

const LOOKS = 1800; // That are kept: an hour.
const GAP = 60; // Seconds without a look: what was meanwhile the brokers know.

const looks = []; // {at, brokers: {ordinal: figures}, stages}
const before = new Map(); // By broker, undefined for all: what was until the first look.

// What was just told by /v1/figures.
export function note(figures) {
  const at = figures.at / 1e6;
  const last = looks.at(-1)?.at ?? 0;
  if (at <= last) return; // It was told before.
  if (last && at - last > GAP) {
    looks.length = 0;
    before.clear();
  }
  const brokers = Object.fromEntries(figures.brokers.map((each) => [each.ordinal, each]));
  looks.push({ at, brokers, stages: figures.stages });
  if (looks.length > LOOKS) looks.shift();
}

// Asks once for what was before: whether there was an answer. Who is told nothing sees what comes.
export async function recall(ask, ordinal) {
  if (before.has(ordinal)) return false;
  before.set(ordinal, null);
  const told = await ask(`/v1/figures/hour${ordinal === undefined ? "" : `?broker=${ordinal}`}`).catch(() => null);
  if (told) before.set(ordinal, { ...told, at: told.at.map((each) => each / 1e6) });
  return told !== null;
}

function earlier(values, ordinal) {
  const told = before.get(ordinal);
  const first = looks[0]?.at ?? Infinity;
  const all = told ? values(told) ?? [] : [];
  return all.flatMap((value, index) => (value !== null && told.at[index] < first ? [[told.at[index], value]] : []));
}

// Of one broker between two looks, a second. A counter that fell began anew, or one of the processes
// was silent: nothing is known.
function grown(then, now, name, number) {
  const [earlier, broker] = [then.brokers[number], now.brokers[number]];
  const [was, is] = [earlier?.figures[name], broker?.figures[name]];
  const known = was !== undefined && is !== undefined && is >= was && earlier.workers === broker.workers;
  return known ? (is - was) / (now.at - then.at) : 0;
}

// Of one broker, a second, now.
export function rate(name, ordinal) {
  return looks.length > 1 ? grown(looks.at(-2), looks.at(-1), name, ordinal) : null;
}

// Of all brokers a look's sum is made once.
function summed(look, name, make) {
  look.sums ??= {};
  look.sums[name] ??= Object.keys(look.brokers).reduce((sum, each) => sum + make(each), 0);
  return look.sums[name];
}

// What is counted, a second: of a broker, or of all.
export function rates(name, ordinal) {
  const points = looks.slice(1).map((now, index) => {
    const of = (each) => grown(looks[index], now, name, each);
    return [now.at, ordinal === undefined ? summed(now, name, of) : of(ordinal)];
  });
  return [...earlier((told) => told.figures[name], ordinal), ...points];
}

// What is had: memory, room on the disk.
export function amounts(name, ordinal) {
  const points = looks.map((now) => {
    const of = (each) => now.brokers[each]?.figures[name] ?? 0;
    return [now.at, ordinal === undefined ? summed(now, name, of) : of(ordinal)];
  });
  return [...earlier((told) => told.figures[name], ordinal), ...points];
}

// Of a stage of produces, in seconds, of all brokers or of one; 0 where there were none. Of what was
// before that process counts which took longest.
export function delays(stage, share, ordinal) {
  const points = looks.map((each) => {
    const told = ordinal === undefined ? each.stages : each.brokers[ordinal]?.stages;
    return [each.at, told?.[stage]?.[share] ?? 0];
  });
  return [...(share === "p99" ? earlier((told) => told.stages[stage], ordinal) : []), ...points];
}

