// The chat view: the list of conversations, the open one, and the form below it.

import { answer, isHistory } from "./conversation.js";
import { at, button, copyButton, make, notice } from "./dom.js";
import { markdown } from "./markdown.js";
import { bindSettings, showSettings } from "./settings.js";
import { start } from "./slices.js";
import * as store from "./store.js";

const MAX_TITLE_CHARS = 40, TURNS_AT_ONCE = 16;
let conversations = [];
let open = null;
let editing = null; // the turn whose message is in the form, to be sent anew
let running = null; // { conversation, turn, controller }
let giveUpDrawing = () => {}; // of the turns that are still being drawn

export function startChat() {
  const [stored, numBroken] = store.loadAll();
  conversations = stored;
  if (numBroken) notice(`Stored conversations that cannot be read, and are left out: ${numBroken}.`);
  show(conversations[0] ?? addConversation());
  bindSettings(() => open.settings, () => keep(open));
  at("new").addEventListener("click", () => { show(addConversation()); at("text").focus(); });
  at("delete").addEventListener("click", () => remove(open));
  at("title").addEventListener("change", () => { open.title = at("title").value.trim(); keep(open); });
  at("stop").addEventListener("click", stop);
  at("form").addEventListener("submit", event => { event.preventDefault(); submit(); });
  at("text").addEventListener("keydown", event => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    at("form").requestSubmit();
  });
  document.addEventListener("keydown", event => { if (event.key === "Escape") stop(); });
  addEventListener("storage", reload);
}

/** Another tab has changed something: the list follows, the open conversation stays as it is here. */
function reload() {
  const held = new Set([open, running?.conversation]);
  const stored = store.loadAll()[0].filter(found => ![...held].some(mine => mine?.id === found.id));
  conversations = [...conversations.filter(mine => held.has(mine)), ...stored];
  list();
}

function addConversation() {
  const empty = conversations.find(conversation => !conversation.turns.length);
  if (empty) return empty;
  conversations.unshift(store.newConversation(open?.settings));
  return conversations[0];
}

function keep(conversation) {
  conversation.updated = Date.now();
  const problem = store.save(conversation);
  if (problem) notice(problem);
  list();
}

function remove(conversation) {
  const place = conversations.indexOf(conversation);
  if (running?.conversation === conversation) stop();
  conversations.splice(place, 1);
  store.remove(conversation.id);
  show(conversations[Math.min(place, conversations.length - 1)] ?? addConversation());
  notice(`Deleted “${titleOf(conversation)}”.`, () => {
    conversations.splice(place, 0, conversation);
    keep(conversation);
    show(conversation);
  });
}

/** The start of a line, cut between words. */
function titleFrom(line) {
  if (line.length <= MAX_TITLE_CHARS) return line;
  const cut = line.slice(0, MAX_TITLE_CHARS);
  return `${cut.slice(0, Math.max(cut.lastIndexOf(" "), MAX_TITLE_CHARS / 2))} …`;
}

const titleOf = conversation => conversation.title || "New conversation";

function list() {
  at("conversations").replaceChildren(...conversations.map(conversation => {
    const item = button(titleOf(conversation), () => show(conversation));
    if (conversation === open) item.setAttribute("aria-current", "true");
    return make("li", {}, item);
  }));
}

function show(conversation) {
  if (conversation !== open) editing = null;
  open = conversation;
  at("title").value = conversation.title;
  at("title").placeholder = titleOf(conversation);
  showSettings(conversation.settings);
  list();
  drawTurns();
}

/** The last turn first, which is what is shown; those before it follow in slices. */
function drawTurns() {
  giveUpDrawing();
  at("log").replaceChildren();
  giveUpDrawing = start(drawFromLast([...open.turns]));
}

function* drawFromLast(turns) {
  let above = []; // drawn and not shown yet: what is shown is laid out anew
  const last = turns.pop();
  if (last) at("log").append(yield* drawTurn(last));
  at("log").scrollTop = at("log").scrollHeight;
  while (turns.length) {
    above.unshift(yield* drawTurn(turns.pop()));
    if (turns.length && above.length < TURNS_AT_ONCE) continue;
    const log = at("log"), fromEnd = log.scrollHeight - log.scrollTop;
    log.prepend(...above);
    log.scrollTop = log.scrollHeight - fromEnd;
    above = [];
  }
}

function* drawTurn(turn) {
  const isOut = turn !== open.turns.at(-1) && !isHistory(turn);
  const element = make("article", { className: isOut ? "turn left-out" : "turn" });
  element.append(make("div", { className: "message user", tabIndex: 0, textContent: turn.user }));
  element.append(make("div", { className: "tools" }, isOut ? "not sent with later messages" : [],
    button("Edit", () => edit(turn)), copyButton(() => turn.user)));
  if (turn.answer || turn.reasoning || running?.turn === turn) element.append(yield* drawAnswer(turn));
  if (turn.problem) element.append(drawProblem(turn));
  return element;
}

function* drawAnswer(turn) {
  const box = make("div", { className: "message assistant" });
  if (turn.reasoning) {
    const title = running?.turn === turn && !turn.answer ? "Reasoning …" : "Reasoning";
    const inside = [make("summary", { textContent: title }), make("div", { textContent: turn.reasoning })];
    box.append(make("details", { className: "reasoning" }, inside));
  }
  box.append(make("div", { className: "text" }, yield* markdown(turn.answer)));
  const note = make("span", { className: "note", textContent: turn.note });
  box.append(make("div", { className: "tools" }, note, copyButton(() => turn.answer)));
  return box;
}

function drawProblem(turn) {
  const actions = [button("Edit the message", () => edit(turn))];
  const isLast = turn === open.turns.at(-1), hasOlder = open.turns.some(other => other !== turn && isHistory(other));
  if (isLast && turn.tooLong === "conversation" && hasOlder) {
    actions.push(button("Send without the oldest turns", () => run(open, turn, true)));
  } else if (isLast && !turn.tooLong) actions.push(button("Try again", () => run(open, turn)));
  actions.push(button("Remove it", () => { open.turns.splice(open.turns.indexOf(turn), 1); keep(open); drawTurns(); }));
  return make("div", { className: "message problem", role: "alert" }, make("p", { textContent: turn.problem }),
    make("div", { className: "tools" }, actions));
}

/** The answer under way has grown: its part of the page is drawn anew, at most once per frame. */
function grown() {
  if (running.isDrawing) return;
  running.isDrawing = true;
  requestAnimationFrame(() => { if (running) start(drawGrown(running)); });
}

function* drawGrown(drawn) {
  const { conversation, turn } = drawn, log = at("log");
  const fresh = yield* drawAnswer(turn);
  drawn.isDrawing = false;
  const old = conversation === open ? log.lastElementChild?.querySelector(".assistant") : null;
  if (drawn !== running || !old) return;
  const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
  if (old.querySelector(".reasoning")?.open) fresh.querySelector(".reasoning").open = true;
  old.replaceWith(fresh);
  if (isAtEnd) log.scrollTop = log.scrollHeight;
}

function edit(turn) {
  if (running) return;
  editing = turn;
  at("text").value = turn.user;
  at("text").focus();
  notice("Sending replaces this message and what follows it.");
}

function stop() {
  running?.controller.abort();
}

function submit() {
  const text = at("text").value.trim();
  if (!text || running) return;
  if (editing) open.turns.splice(open.turns.indexOf(editing));
  editing = null;
  notice("");
  at("text").value = "";
  open.title ||= titleFrom(text.split("\n")[0]);
  at("title").value = open.title;
  const turn = store.newTurn(text);
  open.turns.push(turn);
  run(open, turn);
}

/** One answer at a time; the conversation is kept before and after it. */
async function run(conversation, turn, mayForget = false) {
  running = { conversation, turn, controller: new AbortController(), isDrawing: false };
  setBusy(true);
  keep(conversation);
  show(conversation);
  await answer(conversation, turn, running.controller.signal, grown, mayForget);
  running = null;
  setBusy(false);
  if (conversations.includes(conversation)) keep(conversation);
  if (conversation !== open) return;
  drawTurns();
  if (turn.tooLong) edit(turn);
}

function setBusy(isBusy) {
  at("send").disabled = isBusy;
  at("stop").disabled = !isBusy;
  at("log").setAttribute("aria-busy", String(isBusy)); // readers speak the answer when it is whole
}
