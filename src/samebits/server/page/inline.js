// The inside of a paragraph: code, emphasis and links, as nodes. Time is linear in the text's length: what was searched
// for in vain is not searched for again, and what is found for one place is kept for the places behind it.

import { make } from "./dom.js";
import { runLength } from "./lines.js";

const MAX_DEPTH = 6, MAX_LABEL_CHARS = 500, MAX_URL_CHARS = 2000, MAX_TRAILING_CHARS = 8;
const MARKS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];
const SPECIAL = "\\`*_~[", RUNS = "*_~`", URL_ENDS = "<>\"`", TRAILING = ".,;:!?)]*_~";
const PROTOCOLS = ["http:", "https:", "mailto:"];
const isWord = char => /[\p{L}\p{N}]/u.test(char);
const isBlank = char => char.trim() === ""; // the text's ends count too
const isPunctuation = char => /[!-/:-@[-`{-~]/.test(char);
const startsAddress = (text, i) => text.startsWith("http://", i) || text.startsWith("https://", i);

/** Work for slices.js whose result is the nodes of a text without blocks. */
export function* inline(text, depth = 0) {
  if (depth > MAX_DEPTH) return [text];
  const nodes = [], known = new Known(text);
  let plain = "", i = 0;
  for (;;) {
    yield;
    const special = nextSpecial(text, i);
    plain += text.slice(i, special);
    i = special;
    if (i === text.length) break;
    if (text[i] === "\\" && isPunctuation(text[i + 1] ?? "")) {
      plain += text[i + 1];
      i += 2;
      continue;
    }
    const found = code(known, i) ?? (yield* emphasis(known, i, depth)) ?? (yield* link(known, i, depth))
      ?? address(known, i);
    if (found) {
      nodes.push(plain, found[0]);
      plain = "";
      i = found[1];
    } else {
      const length = RUNS.includes(text[i]) ? runLength(text, i, text[i]) : 1; // all marks that mean nothing here
      plain += text.slice(i, i + length);
      i += length;
    }
  }
  return [...nodes, plain].filter(node => node !== "");
}

function nextSpecial(text, start) {
  let i = start;
  while (i < text.length && !SPECIAL.includes(text[i]) && !(text[i] === "h" && startsAddress(text, i))) i += 1;
  return i;
}

/** What is known of a text that is read from its start to its end. */
class Known {
  constructor(text) {
    this.text = text;
    this.hopeless = new Set(); // marks of emphasis that nothing behind here closes
    this.middle = -1; // of the next link, where its label ends
    this.target = { start: -1, end: -1, href: null };
    this.addressEnd = 0; // of the last address, which leads nowhere where something in it is looked at
    this.ticks = null;
  }

  /** Where a link's label ends at or behind i; Infinity where none does. */
  middleFrom(i) {
    if (this.middle < i) {
      const found = this.text.indexOf("](", i);
      this.middle = found < 0 ? Infinity : found;
    }
    return this.middle;
  }

  /** The { end, href } of a link's target that starts here; href is null where it leads nowhere. */
  targetFrom(start) {
    if (this.target.start === start) return this.target;
    let end = Math.max(start, this.target.end); // where the one before ended, unless this starts behind it
    while (end < this.text.length && this.text[end] !== ")" && !isBlank(this.text[end])) end += 1;
    const isTarget = this.text[end] === ")" && end - start < MAX_URL_CHARS;
    const href = isTarget ? this.text.slice(start, end) : "";
    this.target = { start, end, href: isTarget && leadsToTheWeb(href) ? href : null };
    return this.target;
  }

  /** Where the next run of exactly so many backticks starts, at or behind i; undefined where none does. */
  runOfTicks(width, i) {
    this.ticks ??= runsOfTicks(this.text);
    const runs = this.ticks.get(width);
    if (!runs) return undefined;
    while (runs.starts[runs.next] < i) runs.next += 1;
    return runs.starts[runs.next];
  }
}

function runsOfTicks(text) {
  const runs = new Map();
  for (let i = text.indexOf("`"); i >= 0;) {
    const width = runLength(text, i, "`");
    if (!runs.has(width)) runs.set(width, { starts: [], next: 0 });
    runs.get(width).starts.push(i);
    i = text.indexOf("`", i + width);
  }
  return runs;
}

function code(known, i) {
  const { text } = known;
  if (text[i] !== "`") return null;
  const width = runLength(text, i, "`"), end = known.runOfTicks(width, i + width);
  if (end === undefined) return null;
  return [make("code", { textContent: text.slice(i + width, end).trim() }), end + width];
}

function* emphasis({ text, hopeless }, i, depth) {
  for (const [mark, tag] of MARKS) {
    if (!text.startsWith(mark, i) || hopeless.has(mark)) continue;
    const start = i + mark.length, isUnderscore = mark[0] === "_";
    if (isBlank(text[start] ?? "") || (isUnderscore && isWord(text[i - 1] ?? ""))) continue;
    for (let end = text.indexOf(mark, start + 1); end >= 0; end = text.indexOf(mark, end + 1)) {
      const after = end + mark.length;
      if (isBlank(text[end - 1]) || (isUnderscore && isWord(text[after] ?? ""))) continue;
      if (mark.length === 1 && (text[after] === mark || text[end - 1] === mark)) continue; // half of a double one
      return [make(tag, {}, yield* inline(text.slice(start, end), depth + 1)), after];
    }
    hopeless.add(mark);
  }
  return null;
}

function* link(known, i, depth) {
  const { text } = known;
  if (text[i] !== "[") return null;
  const middle = known.middleFrom(i);
  if (middle - i > MAX_LABEL_CHARS) return null;
  const { end, href } = known.targetFrom(middle + 2);
  if (href === null) return null; // ahead of its label, which would be read again from each bracket in it
  return [anchor(href, yield* inline(text.slice(i + 1, middle), depth + 1)), end + 1];
}

function address(known, i) {
  const { text } = known;
  if (i < known.addressEnd || !startsAddress(text, i)) return null; // inside one that leads nowhere
  let end = i;
  while (end < text.length && !isBlank(text[end]) && !URL_ENDS.includes(text[end])) end += 1;
  known.addressEnd = end;
  for (let n = 0; n < MAX_TRAILING_CHARS && TRAILING.includes(text[end - 1]); n += 1) end -= 1;
  const url = text.slice(i, end);
  return end - i < MAX_URL_CHARS && leadsToTheWeb(url) ? [anchor(url, [url]), end] : null;
}

function leadsToTheWeb(href) {
  return URL.canParse(href) && PROTOCOLS.includes(new URL(href).protocol);
}

function anchor(href, children) {
  return make("a", { href, title: href, target: "_blank", rel: "noopener noreferrer nofollow" }, children);
}
