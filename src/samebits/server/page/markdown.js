// Markdown as elements. The text is a model's, so nobody vouches for it: every piece of it becomes a text node,
// links lead to the web alone and nothing is loaded. Nesting is bounded, and time is linear in the text's length: lines
// are read character by character (lines.js), since a regular expression with a repeat may read one again and again.

import { codeBlock, make } from "./dom.js";
import { inline } from "./inline.js";
import { cells, fence, heading, isDashes, isRule, item } from "./lines.js";

const MAX_DEPTH = 8, MAX_COLUMNS = 64;

/** Work for slices.js whose result is the nodes of a text. A text that is still growing may end anywhere. */
export function markdown(text) {
  return blocks(text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n"), 0);
}

function* blocks(lines, depth) {
  if (depth > MAX_DEPTH) return [make("p", { textContent: lines.join("\n") })];
  const nodes = [];
  for (let i = 0; i < lines.length;) {
    yield;
    if (!lines[i].trim()) { i += 1; continue; }
    const [node, next] = yield* block(lines, i, depth);
    nodes.push(node);
    i = next;
  }
  return nodes;
}

/** [the element of the block that starts at line i, the line behind it]. */
function* block(lines, i, depth) {
  const line = lines[i], title = heading(line);
  if (fence(line)) return fenced(lines, i);
  if (title) return [make(`h${Math.min(6, title.level + 2)}`, {}, yield* inline(title.text.trim())), i + 1];
  if (isRule(line)) return [make("hr"), i + 1];
  if (line.startsWith(">")) return yield* quote(lines, i, depth);
  if (item(line)) return yield* list(lines, i, depth);
  if (isTable(lines, i)) return yield* table(lines, i);
  let end = i + 1;
  while (end < lines.length && lines[end].trim() && !startsBlock(lines, end)) { yield; end += 1; }
  return [make("p", {}, yield* inline(lines.slice(i, end).join("\n"))), end];
}

function startsBlock(lines, i) {
  const line = lines[i];
  return line.startsWith(">") || [fence, heading, isRule, item].some(starts => starts(line)) || isTable(lines, i);
}

function fenced(lines, i) {
  const { mark, language } = fence(lines[i]);
  const isEnd = line => line.trim().startsWith(mark) && !line.trim().replaceAll(mark[0], "");
  let end = i + 1;
  while (end < lines.length && !isEnd(lines[end])) end += 1;
  return [codeBlock(language.trim(), lines.slice(i + 1, end).join("\n")), end + 1];
}

function* quote(lines, i, depth) {
  let end = i;
  while (end < lines.length && lines[end].startsWith(">")) end += 1;
  const inner = lines.slice(i, end).map(line => line.slice(line.startsWith("> ") ? 2 : 1));
  return [make("blockquote", {}, yield* blocks(inner, depth + 1)), end];
}

function* list(lines, i, depth) {
  const { indent, mark } = item(lines[i]), isOrdered = mark.length > 1, element = make(isOrdered ? "ol" : "ul");
  if (isOrdered) element.start = parseInt(mark, 10);
  while (i < lines.length) {
    const found = item(lines[i]);
    if (!found || found.indent !== indent || isRule(lines[i])) break;
    if ((found.mark.length > 1) !== isOrdered) break;
    const width = Math.min(found.length, indent + found.mark.length + 1);
    const inner = [lines[i].slice(found.length)];
    for (i += 1; i < lines.length; i += 1) {
      yield;
      const isInside = lines[i].slice(0, width).trim() === "";
      const isLazy = lines[i - 1].trim() && !startsBlock(lines, i);
      if (!isInside && !isLazy) break;
      inner.push(isInside ? lines[i].slice(width) : lines[i].trimStart());
    }
    element.append(make("li", {}, tight(yield* blocks(inner, depth + 1))));
  }
  return [element, i];
}

/** An item's only paragraph needs no element of its own. */
function tight(nodes) {
  return nodes[0]?.tagName === "P" ? [...nodes[0].childNodes, ...nodes.slice(1)] : nodes;
}

function isTable(lines, i) {
  const below = lines[i + 1] ?? "";
  return below.includes("|") && lines[i].includes("|") && isDashes(below) && cells(lines[i]).length <= MAX_COLUMNS;
}

function* table(lines, i) {
  const head = cells(lines[i]), body = make("tbody");
  let end = i + 2;
  for (; end < lines.length && lines[end].includes("|"); end += 1) {
    body.append(yield* row("td", cells(lines[end]).slice(0, head.length)));
  }
  const whole = make("table", {}, make("thead", {}, yield* row("th", head)), body);
  return [make("div", { className: "table", tabIndex: 0 }, whole), end];
}

function* row(kind, texts) {
  const children = [];
  for (const text of texts) children.push(make(kind, {}, yield* inline(text)));
  return make("tr", {}, children);
}
