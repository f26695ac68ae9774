// Events that are looked for: the broker says of each answer's worth which are meant, and here it is
// asked again until there are enough of them, or it has been asked often enough for one time.

export const LOOK_BYTES = 4194304; // That an answer looks at.
const ASKED = 32; // Times, of all slices together, before somebody is asked whether to go on.
const FIRST = 2000; // Events that are looked at first, from the end.

// Parts of what stands between two `and`, of which one in quotes is a part of a text.
const PART = /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\s+and\s+|[^"'\s]+|\s+|["']/gi;

function between(where) {
  const found = [""];
  for (const [part] of where.matchAll(PART)) {
    if (/^\s+and\s+$/i.test(part)) found.push("");
    else found[found.length - 1] += part;
  }
  return found.map((each) => each.trim()).filter(Boolean);
}

// As the broker takes them: a text in quotes is a text, whatever it looks like.
export function conditionsOf(key, text, where) {
  const given = between(where);
  if (key) given.push(`key~${JSON.stringify(key)}`);
  if (text) given.push(`value~${JSON.stringify(text)}`);
  return given;
}

export const offsetOf = (cursor) => BigInt(`0x${cursor.slice(9)}`);
export const cursorOf = (offset) => `00000000-${offset.toString(16).padStart(16, "0")}`;

// One slice that is gone through, from its end backwards or from a place forwards. read(one, cursor,
// to): {next, events}, of one answer.
function backwards(one, read) {
  const first = BigInt(one.startOffset);
  const state = { found: [], looked: 0n, upper: BigInt(one.endOffset), step: BigInt(FIRST), end: one.end };
  state.left = () => state.upper - first;
  state.go = async () => {
    const lower = state.upper - state.step > first ? state.upper - state.step : first;
    let [at, asked] = [lower, 0n];
    const some = [];
    while (at < state.upper) {
      const part = await read(one, cursorOf(at), cursorOf(state.upper));
      some.push(...part.events);
      asked += 1n;
      const next = offsetOf(part.next);
      if (next <= at) break;
      at = next;
    }
    state.looked += state.upper - lower;
    state.found.push(...some);
    state.upper = lower;
    // As many events as one answer looks at, about.
    state.step = asked > 1n ? state.step / asked + 1n : state.step * 4n;
    return Number(asked);
  };
  return state;
}

function forwards(one, read, place) {
  const state = { found: [], looked: 0n, at: place, end: one.end };
  const last = BigInt(one.endOffset);
  const isCursor = () => /^[0-9a-f]{8}-[0-9a-f]{16}$/.test(state.at);
  state.left = () => (isCursor() ? (last > offsetOf(state.at) ? last - offsetOf(state.at) : 0n) : last - BigInt(one.startOffset));
  state.go = async () => {
    const from = isCursor() ? offsetOf(state.at) : null;
    const part = await read(one, state.at, one.end);
    const next = offsetOf(part.next);
    if (from !== null) state.looked += next - from;
    state.found.push(...part.events);
    state.at = next >= last || (from !== null && next <= from) ? one.end : part.next;
    return 1;
  };
  return state;
}

// A search over slices. more(): asks until each has `share` events more, or there is nothing left.
export function searchOf(slices, place, read) {
  const parts = slices.map((one) => (place === "newest" ? backwards(one, read) : forwards(one, read, place)));
  return {
    found: () => parts.flatMap((each) => each.found),
    looked: () => parts.reduce((sum, each) => sum + each.looked, 0n),
    left: () => parts.reduce((sum, each) => sum + each.left(), 0n),
    more: async (number) => {
      const wanted = parts.reduce((sum, each) => sum + each.found.length, 0) + number;
      const each = Math.max(1, Math.floor(ASKED / Math.max(1, parts.length)));
      const told = await Promise.allSettled(parts.map(async (part) => {
        const before = part.found.length;
        for (let asked = 0; asked < each && part.left() > 0n && part.found.length - before < number;) {
          asked += await part.go();
          if (parts.reduce((sum, one) => sum + one.found.length, 0) >= wanted && place !== "newest") return;
        }
      }));
      const failed = told.find((one) => one.status === "rejected");
      if (failed) throw failed.reason;
    },
  };
}
