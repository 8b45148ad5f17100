// What a line of markdown is. Each function passes over the line once, so that its time is linear in the length.

const MAX_INDENT = 3, MAX_LEVEL = 6, MAX_DIGITS = 9; // of what is not code, of headings, and of an item's number
const TABLE_MARKS = " |:-", BULLETS = "-*+", RULE_MARKS = "-*_";

/** How often a character is repeated in a text from a place on. */
export function runLength(text, start, char) {
  let end = start;
  while (text[end] === char) end += 1;
  return end - start;
}

const isDigit = char => char >= "0" && char <= "9";

/** The start of fenced code as { mark, language }, or null. */
export function fence(line) {
  const indent = runLength(line, 0, " "), char = line[indent];
  if (indent > MAX_INDENT || (char !== "`" && char !== "~")) return null;
  const width = runLength(line, indent, char), language = line.slice(indent + width);
  if (width < 3 || (char === "`" && language.includes("`"))) return null;
  return { mark: char.repeat(width), language };
}

/** A heading as { level, text }, or null. */
export function heading(line) {
  const indent = runLength(line, 0, " "), level = runLength(line, indent, "#"), end = indent + level;
  if (indent > MAX_INDENT || level < 1 || level > MAX_LEVEL || line[end] !== " ") return null;
  return { level, text: line.slice(end + 1) };
}

/** Whether the line is a rule: three or more equal marks and blanks. */
export function isRule(line) {
  const indent = runLength(line, 0, " "), mark = line[indent];
  if (indent > MAX_INDENT || mark === undefined || !RULE_MARKS.includes(mark)) return false;
  let count = 0;
  for (let i = indent; i < line.length; i += 1) {
    if (line[i] === mark) count += 1;
    else if (line[i] !== " ") return false;
  }
  return count >= 3;
}

/** The start of a list's item as { indent, mark, length }, the last one with the blanks behind the mark; or null. */
export function item(line) {
  const indent = runLength(line, 0, " ");
  let end = indent;
  if (end < line.length && BULLETS.includes(line[end])) end += 1;
  else {
    while (isDigit(line[end]) && end - indent < MAX_DIGITS) end += 1;
    if (end === indent || (line[end] !== "." && line[end] !== ")")) return null;
    end += 1;
  }
  const blanks = runLength(line, end, " ");
  return blanks || end === line.length ? { indent, mark: line.slice(indent, end), length: end + blanks } : null;
}

/** Whether the line separates a table's head from its body. */
export function isDashes(line) {
  for (let i = 0; i < line.length; i += 1) if (!TABLE_MARKS.includes(line[i])) return false;
  return line.includes("-");
}

/** The cells of a table's row: a bar behind a backslash is text. */
export function cells(line) {
  let row = line.trim();
  if (row.startsWith("|")) row = row.slice(1);
  if (row.endsWith("|")) row = row.slice(0, -1);
  const parts = [];
  let start = 0;
  for (let bar = row.indexOf("|"); bar >= 0; bar = row.indexOf("|", bar + 1)) {
    if (row[bar - 1] === "\\") continue;
    parts.push(row.slice(start, bar));
    start = bar + 1;
  }
  return [...parts, row.slice(start)].map(part => part.trim().replaceAll("\\|", "|"));
}
