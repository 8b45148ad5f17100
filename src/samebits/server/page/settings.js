// The settings of the open conversation, in the fields above it.

import { getJson, Refusal } from "./api.js";
import { at } from "./dom.js";

const number = (value, none) => (value === "" ? none : Number(value));
const FIELDS = {
  system: ["system", value => value],
  temperature: ["temperature", value => number(value, null)],
  seed: ["seed", value => number(value, null)],
  maxTokens: ["max-tokens", value => number(value, null)],
};

export function showSettings(settings) {
  for (const [name, [id]] of Object.entries(FIELDS)) at(id).value = settings[name] ?? "";
}

/** Shows in empty fields the values that the server takes for them, once it has a model. */
async function showDefaults() {
  try {
    const { default_generation_settings: { params } } = await getJson("props");
    at("temperature").placeholder = params.temperature;
    at("max-tokens").placeholder = params.max_tokens;
  } catch (error) {
    if (!(error instanceof Refusal)) throw error; // the placeholders of the page say who decides
  }
}

/** A valid change goes into `settings()`, then `changed` is called; an invalid one is said by the browser. */
export function bindSettings(settings, changed) {
  at("settings").addEventListener("toggle", showDefaults);
  for (const [name, [id, read]] of Object.entries(FIELDS)) {
    at(id).addEventListener("change", () => {
      if (!at(id).reportValidity()) return;
      settings()[name] = read(at(id).value);
      changed();
    });
  }
}
