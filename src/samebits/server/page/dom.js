// Small helpers for the document. Text goes in as text, never as markup.

export const at = id => document.getElementById(id);

/** An element with properties and children: nodes, strings, which become text, and lists of both. */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  for (const child of children.flat()) element.append(child);
  return element;
}

/** A button that does something when pressed. */
export function button(text, press) {
  const element = make("button", { type: "button", textContent: text });
  element.addEventListener("click", press);
  return element;
}

/** A button that copies what `text()` gives, and says for a moment whether it did. */
export function copyButton(text) {
  const element = button("Copy", async () => {
    element.textContent = (await copied(text())) ? "Copied" : "Not copied";
    setTimeout(() => { element.textContent = "Copy"; }, 1500);
  });
  return element;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { // no clipboard on plain HTTP from another machine: the old way still works there
    const area = make("textarea", { value: text });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** Code with its language and a button that copies it. */
export function codeBlock(language, text) {
  const caption = make("figcaption", {}, make("span", { textContent: language }), copyButton(() => text));
  const code = make("pre", { tabIndex: 0 }, make("code", { textContent: text }));
  return make("figure", { className: "code" }, caption, code);
}

/** One line above everything; with `undo`, a button that calls it. */
export function notice(text, undo = null) {
  at("notice").hidden = !text;
  at("notice-text").textContent = text;
  at("notice-undo").hidden = !undo;
  at("notice-undo").onclick = () => { notice(""); undo(); };
}
