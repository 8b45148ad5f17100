// Counts what rendering takes: `node page_work.mjs FOLDER < texts.json` prints a list of numbers, one for each text.
// A number counts the characters that native functions pass over and the blocks of the page's own code that run, loop
// bodies included, so it does not depend on the machine.

import { readFileSync } from "node:fs";
import { Session } from "node:inspector/promises";
import { pathToFileURL } from "node:url";

class Element {
  constructor(tag) { this.tagName = tag.toUpperCase(); this.childNodes = []; }
  append(...children) { this.childNodes.push(...children); }
  addEventListener() {}
}
globalThis.document = { createElement: tag => new Element(tag) };

let chars = 0;
const costs = {
  indexOf: (text, [, from = 0], found) => (found < 0 ? text.length : found) - from,
  includes: text => text.length,
  startsWith: (text, [start]) => start.length,
  slice: (text, given, result) => result.length,
  trim: text => text.length,
  trimStart: text => text.length,
  split: text => text.length,
  replaceAll: text => text.length,
};
for (const [name, cost] of Object.entries(costs)) {
  const plain = String.prototype[name];
  String.prototype[name] = function (...given) {
    const result = plain.apply(this, given);
    chars += 1 + Math.max(0, cost(this, given, result));
    return result;
  };
}

const folder = process.argv[2];
const { markdown } = await import(pathToFileURL(`${folder}/markdown.js`).href);
const { whole } = await import(pathToFileURL(`${folder}/slices.js`).href);
const session = new Session();
session.connect();
await session.post("Profiler.enable");
await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });

async function numBlocks() {
  const { result } = await session.post("Profiler.takePreciseCoverage"); // since the one before
  const own = result.filter(script => script.url.startsWith(pathToFileURL(folder).href));
  return own.flatMap(script => script.functions).flatMap(f => f.ranges).reduce((sum, range) => sum + range.count, 0);
}

const counts = [];
for (const text of JSON.parse(readFileSync(0, "utf8"))) {
  await numBlocks();
  chars = 0;
  whole(markdown(text));
  counts.push(chars + await numBlocks());
}
console.log(JSON.stringify(counts));
