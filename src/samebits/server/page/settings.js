// The settings of the open conversation, in the fields above it.

import { at } from "./dom.js";

const number = (value, none) => (value === "" ? none : Number(value));
const FIELDS = {
  system: ["system", value => value],
  temperature: ["temperature", value => number(value, 0)],
  seed: ["seed", value => number(value, null)],
  maxTokens: ["max-tokens", value => number(value, null)],
};

export function showSettings(settings) {
  for (const [name, [id]] of Object.entries(FIELDS)) at(id).value = settings[name] ?? "";
}

/** A valid change goes into `settings()`, then `changed` is called; an invalid one is said by the browser. */
export function bindSettings(settings, changed) {
  for (const [name, [id, read]] of Object.entries(FIELDS)) {
    at(id).addEventListener("change", () => {
      if (!at(id).reportValidity()) return;
      settings()[name] = read(at(id).value);
      changed();
    });
  }
}
