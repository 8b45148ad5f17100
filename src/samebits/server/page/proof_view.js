// The view of a proof: its form, the two answers side by side, the verdict, the record, the receipt and the commands.

import { at, codeBlock, make } from "./dom.js";
import { curlScript } from "./curl.js";
import { NUM_NEIGHBOURS } from "./neighbours.js";
import { proofRequest, prove } from "./proof.js";

const HEADLINES = {
  same: "Same bits.",
  different: "NOT the same bits. This server broke its promise.",
  "nothing proven": "Nothing proven.",
};
const PANELS = { alone: "Alone", among: `Among ${NUM_NEIGHBOURS} others` };
let record = null;
let controller = null;

export function startProof() {
  at("proof-form").addEventListener("submit", event => { event.preventDefault(); if (!controller) start(); });
  at("proof-form").addEventListener("input", showCurl);
  at("proof-stop").addEventListener("click", () => controller?.abort());
  at("record").addEventListener("click", () => download(record, "samebits-proof.json"));
  at("receipt").addEventListener("click", () => download(record.among.receipt, "receipt.json"));
  showCurl();
}

function request() {
  const numbers = ["temperature", "seed", "max-tokens"].map(name => Number(at(`proof-${name}`).value));
  const [temperature, seed, maxTokens] = numbers;
  return proofRequest({ prompt: at("proof-prompt").value, temperature, seed, maxTokens });
}

function showCurl() {
  const address = new URL(".", location.href).href;
  at("curl").replaceChildren(codeBlock("bash", curlScript(address, request())));
}

async function start() {
  controller = new AbortController();
  setBusy(true);
  clear();
  const said = text => { at("proof-progress").textContent = text; };
  try {
    record = await prove(request(), controller.signal, said, showAnswer);
    said("");
    showVerdict(record.verdict, record.why);
  } catch (error) {
    said("");
    const why = error.name === "AbortError" ? "It was stopped." : `The server says: ${error.message}.`;
    showVerdict("nothing proven", why);
  } finally {
    controller = null;
    setBusy(false);
  }
}

function setBusy(isBusy) {
  at("proof-start").disabled = isBusy;
  at("proof-stop").disabled = !isBusy;
  at("record").disabled = isBusy || !record;
  at("receipt").disabled = isBusy || !record?.among.receipt;
}

function clear() {
  record = null;
  at("verdict").className = "";
  at("verdict").replaceChildren();
  for (const [name, title] of Object.entries(PANELS)) {
    at(name).className = "";
    at(name).replaceChildren(make("h2", { textContent: title }));
  }
  for (const name of ["record", "receipt"]) at(name).disabled = true;
}

function showAnswer(name, answer) {
  const facts = [
    answer.usage && `${answer.usage.completion_tokens} tokens`,
    answer.largest_batch && `batch of ${answer.largest_batch}`,
  ].filter(Boolean);
  at(name).replaceChildren(
    make("h2", { textContent: PANELS[name] }),
    make("div", { className: "plain", tabIndex: 0, textContent: answer.text }),
    make("span", { className: "dim", textContent: facts.join(", ") }),
    make("span", { className: "hash", textContent: answer.logits_sha256 ?? "" }),
  );
}

function showVerdict(verdict, why) {
  const kind = verdict.replace(" ", "-");
  at("verdict").className = kind;
  at("verdict").replaceChildren(make("strong", { textContent: HEADLINES[verdict] }), ` ${why}`);
  for (const name of Object.keys(PANELS)) at(name).className = kind;
}

function download(content, name) {
  const url = URL.createObjectURL(new Blob([`${JSON.stringify(content, null, 2)}\n`], { type: "application/json" }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
