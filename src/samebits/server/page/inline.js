// The inside of a paragraph: code, emphasis and links, as nodes.

import { make } from "./dom.js";

const MAX_DEPTH = 6, MAX_LABEL_CHARS = 500, MAX_URL_CHARS = 2000;
const MARKS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];
const PROTOCOLS = ["http:", "https:", "mailto:"];
const isWord = char => /[\p{L}\p{N}]/u.test(char);
const isBlank = char => /^\s?$/.test(char); // the text's ends count too

/** Nodes for a text without blocks. */
export function inline(text, depth = 0) {
  if (depth > MAX_DEPTH) return [text];
  const nodes = [], hopeless = new Set(); // marks that nothing behind here closes
  let plain = "", i = 0;
  while (i < text.length) {
    const special = text.slice(i).search(/[\\`*_~[]|https?:\/\//);
    if (special < 0) break;
    plain += text.slice(i, i + special);
    i += special;
    if (text[i] === "\\" && /[!-/:-@[-`{-~]/.test(text[i + 1] ?? "")) {
      plain += text[i + 1];
      i += 2;
      continue;
    }
    const found = code(text, i, hopeless) ?? emphasis(text, i, hopeless, depth)
      ?? link(text, i, depth) ?? address(text, i);
    if (found) {
      nodes.push(plain, found[0]);
      plain = "";
      i = found[1];
    } else {
      const run = /^(\*+|_+|~+|`+|.)/su.exec(text.slice(i, i + 64))[0]; // marks that mean nothing here, all of them
      plain += run;
      i += run.length;
    }
  }
  return [...nodes, plain + text.slice(i)].filter(node => node !== "");
}

function code(text, i, hopeless) {
  if (text[i] !== "`") return null;
  let width = 1;
  while (text[i + width] === "`") width += 1;
  const mark = "`".repeat(width);
  if (hopeless.has(mark)) return null;
  for (let end = text.indexOf(mark, i + width); end >= 0; end = text.indexOf(mark, end)) {
    let after = end;
    while (text[after] === "`") after += 1;
    if (after - end === width) return [make("code", { textContent: text.slice(i + width, end).trim() }), after];
    end = after;
  }
  hopeless.add(mark);
  return null;
}

function emphasis(text, i, hopeless, depth) {
  for (const [mark, tag] of MARKS) {
    if (!text.startsWith(mark, i) || hopeless.has(mark)) continue;
    const start = i + mark.length, isUnderscore = mark[0] === "_";
    if (isBlank(text[start] ?? "") || (isUnderscore && isWord(text[i - 1] ?? ""))) continue;
    for (let end = text.indexOf(mark, start + 1); end >= 0; end = text.indexOf(mark, end + 1)) {
      const after = end + mark.length;
      if (isBlank(text[end - 1]) || (isUnderscore && isWord(text[after] ?? ""))) continue;
      if (mark.length === 1 && (text[after] === mark || text[end - 1] === mark)) continue; // half of a double one
      return [make(tag, {}, inline(text.slice(start, end), depth + 1)), after];
    }
    hopeless.add(mark);
  }
  return null;
}

function link(text, i, depth) {
  if (text[i] !== "[") return null;
  const middle = text.slice(i, i + MAX_LABEL_CHARS).indexOf("](");
  if (middle < 0) return null;
  const start = i + middle + 2, length = text.slice(start, start + MAX_URL_CHARS).search(/[)\s]/);
  if (length < 0 || text[start + length] !== ")") return null;
  const node = anchor(text.slice(start, start + length), inline(text.slice(i + 1, i + middle), depth + 1));
  return node && [node, start + length + 1];
}

function address(text, i) {
  const found = /^https?:\/\/[^\s<>"`]+/.exec(text.slice(i, i + MAX_URL_CHARS));
  if (!found) return null;
  const url = found[0].replace(/[.,;:!?)\]*_~]{1,8}$/, "");
  const node = anchor(url, [url]);
  return node && [node, i + url.length];
}

/** A link to the web; null for an address that leads anywhere else. */
function anchor(href, children) {
  if (!URL.canParse(href) || !PROTOCOLS.includes(new URL(href).protocol)) return null;
  return make("a", { href, title: href, target: "_blank", rel: "noopener noreferrer nofollow" }, children);
}
