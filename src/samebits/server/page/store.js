// Conversations, kept in the browser: one entry of its storage each, so that a broken one spoils no other.
// What is stored is checked when it is read: it may have been written by anything that ever ran at this address.

const PREFIX = "samebits.conversation.";
export const MAX_CONVERSATIONS = 100;
export const MAX_CHARS = 2_000_000; // of all entries; browsers allow some five million
export const DEFAULTS = { system: "", temperature: null, seed: 1, maxTokens: null }; // null: the server's default

const isText = value => typeof value === "string";
const isWhole = value => Number.isSafeInteger(value) && value >= 0;
const orNull = check => value => value === null || check(value);
const SETTINGS = {
  system: isText,
  temperature: orNull(value => Number.isFinite(value) && value >= 0 && value <= 2),
  seed: orNull(isWhole),
  maxTokens: orNull(value => isWhole(value) && value > 0),
};
const TURN = {
  user: isText, answer: isText, reasoning: isText, note: isText, problem: orNull(isText),
  tooLong: value => [null, "message", "conversation"].includes(value), isLeftOut: value => typeof value === "boolean",
};

const fits = (checks, value) =>
  value !== null && typeof value === "object" && Object.entries(checks).every(([name, check]) => check(value[name]));

function parsed(text) {
  try {
    const { id, title, updated, settings, turns } = JSON.parse(text);
    const isSound = isText(id) && isText(title) && isWhole(updated) && fits(SETTINGS, settings)
      && Array.isArray(turns) && turns.every(turn => fits(TURN, turn));
    return isSound ? { id, title, updated, settings, turns } : null;
  } catch {
    return null;
  }
}

export function newTurn(user) {
  return { user, answer: "", reasoning: "", note: "", problem: null, tooLong: null, isLeftOut: false };
}

export function newConversation(settings = DEFAULTS) {
  const id = crypto.getRandomValues(new Uint32Array(2)).join("-");
  return { id, title: "", updated: Date.now(), settings: { ...settings }, turns: [] };
}

function keys() {
  return Object.keys(localStorage).filter(key => key.startsWith(PREFIX));
}

/** [sound conversations, the last changed first; the number of entries that cannot be read]. */
export function loadAll() {
  try {
    const all = keys().map(key => parsed(localStorage.getItem(key)));
    const sound = all.filter(Boolean).sort((a, b) => b.updated - a.updated);
    return [sound, all.length - sound.length];
  } catch { // storage is switched off
    return [[], 0];
  }
}

/** Keeps a conversation; those unchanged for longest go where there is no room. Returns what became of it, or "". */
export function save(conversation) {
  const key = PREFIX + conversation.id, text = JSON.stringify(conversation);
  try {
    const age = stored => parsed(stored)?.updated ?? 0; // what cannot be read goes first
    const others = keys().filter(other => other !== key).map(other => [other, localStorage.getItem(other)])
      .map(([other, stored]) => [other, stored, age(stored)]);
    others.sort(([, , a], [, , b]) => a - b);
    let chars = text.length + others.reduce((sum, [, stored]) => sum + stored.length, 0), numGone = 0;
    if (text.length > MAX_CHARS) return "This conversation is too long to be kept: it is lost when the page closes.";
    while (others.length && (chars > MAX_CHARS || others.length >= MAX_CONVERSATIONS)) {
      const [oldest, stored] = others.shift();
      localStorage.removeItem(oldest);
      chars -= stored.length;
      numGone += 1;
    }
    localStorage.setItem(key, text);
    return numGone ? `The browser's storage is full: so many old conversations made room: ${numGone}.` : "";
  } catch {
    return "The browser keeps nothing for this page: conversations are lost when it closes.";
  }
}

export function remove(id) {
  try {
    localStorage.removeItem(PREFIX + id);
  } catch { /* storage is switched off: nothing is there */ }
}
