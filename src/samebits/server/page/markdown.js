// Markdown as elements. The text is a model's, so nobody vouches for it: every piece of it becomes a text node, links
// lead to the web alone and nothing is loaded. Time is linear in the text's length, nesting is bounded.

import { codeBlock, make } from "./dom.js";
import { inline } from "./inline.js";

const MAX_DEPTH = 8, MAX_COLUMNS = 64;
const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t](.*)$/;
const RULE = /^ {0,3}(?:(?:- *){3,}|(?:\* *){3,}|(?:_ *){3,})$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])( +|$)/;
const DASHES = /^[ |:-]*-[ |:-]*$/;

/** Nodes for a text; one that is still growing may end in the middle of anything. */
export function markdown(text) {
  return blocks(text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n"), 0);
}

function blocks(lines, depth) {
  if (depth > MAX_DEPTH) return [make("p", { textContent: lines.join("\n") })];
  const nodes = [];
  for (let i = 0; i < lines.length;) {
    if (!lines[i].trim()) { i += 1; continue; }
    const [node, next] = block(lines, i, depth);
    nodes.push(node);
    i = next;
  }
  return nodes;
}

/** [the element of the block that starts at line i, the line behind it]. */
function block(lines, i, depth) {
  const line = lines[i], heading = HEADING.exec(line);
  if (FENCE.test(line)) return fenced(lines, i);
  if (heading) return [make(`h${Math.min(6, heading[1].length + 2)}`, {}, inline(heading[2].trim())), i + 1];
  if (RULE.test(line)) return [make("hr"), i + 1];
  if (line.startsWith(">")) return quote(lines, i, depth);
  if (ITEM.test(line)) return list(lines, i, depth);
  if (isTable(lines, i)) return table(lines, i);
  let end = i + 1;
  while (end < lines.length && lines[end].trim() && !startsBlock(lines, end)) end += 1;
  return [make("p", {}, inline(lines.slice(i, end).join("\n"))), end];
}

function startsBlock(lines, i) {
  const line = lines[i];
  return line.startsWith(">") || [FENCE, HEADING, RULE, ITEM].some(start => start.test(line)) || isTable(lines, i);
}

function fenced(lines, i) {
  const [, fence, language] = FENCE.exec(lines[i]);
  const isEnd = line => line.trim().startsWith(fence) && !line.trim().replaceAll(fence[0], "");
  let end = i + 1;
  while (end < lines.length && !isEnd(lines[end])) end += 1;
  return [codeBlock(language.trim(), lines.slice(i + 1, end).join("\n")), end + 1];
}

function quote(lines, i, depth) {
  let end = i;
  while (end < lines.length && lines[end].startsWith(">")) end += 1;
  const inner = lines.slice(i, end).map(line => line.replace(/^> ?/, ""));
  return [make("blockquote", {}, blocks(inner, depth + 1)), end];
}

function list(lines, i, depth) {
  const [, indent, mark] = ITEM.exec(lines[i]);
  const isOrdered = mark.length > 1, element = make(isOrdered ? "ol" : "ul");
  if (isOrdered) element.start = parseInt(mark, 10);
  while (i < lines.length) {
    const found = ITEM.exec(lines[i]);
    if (!found || found[1].length !== indent.length || RULE.test(lines[i])) break;
    if ((found[2].length > 1) !== isOrdered) break;
    const width = Math.min(found[0].length, indent.length + found[2].length + 1);
    const inner = [lines[i].slice(found[0].length)];
    for (i += 1; i < lines.length; i += 1) {
      const isInside = lines[i].slice(0, width).trim() === "";
      const isLazy = lines[i - 1].trim() && !startsBlock(lines, i);
      if (!isInside && !isLazy) break;
      inner.push(isInside ? lines[i].slice(width) : lines[i].trimStart());
    }
    element.append(make("li", {}, tight(blocks(inner, depth + 1))));
  }
  return [element, i];
}

/** An item's only paragraph needs no element of its own. */
function tight(nodes) {
  return nodes[0]?.tagName === "P" ? [...nodes[0].childNodes, ...nodes.slice(1)] : nodes;
}

function isTable(lines, i) {
  const below = lines[i + 1] ?? "";
  return lines[i].includes("|") && below.includes("|") && DASHES.test(below) && cells(lines[i]).length <= MAX_COLUMNS;
}

function cells(line) {
  const parts = line.trim().replace(/^\|/, "").replace(/\|$/, "").split(/(?<!\\)\|/);
  return parts.map(part => part.trim().replaceAll("\\|", "|"));
}

function table(lines, i) {
  const head = cells(lines[i]), body = make("tbody");
  const row = (kind, texts) => make("tr", {}, texts.map(text => make(kind, {}, inline(text))));
  let end = i + 2;
  for (; end < lines.length && lines[end].includes("|"); end += 1) {
    body.append(row("td", cells(lines[end]).slice(0, head.length)));
  }
  const whole = make("table", {}, make("thead", {}, row("th", head)), body);
  return [make("div", { className: "table", tabIndex: 0 }, whole), end];
}
