// The proof: one request alone, then the same among others, and what the two runs say. No elements here.

import { postEvents, Refusal } from "./api.js";
import { NUM_NEIGHBOURS, neighbourBodies, startNeighbours } from "./neighbours.js";
import { look } from "./pool.js";

const LOOK_MS = 60;
const pause = () => new Promise(done => { setTimeout(done, LOOK_MS); });

/** The request that is proven: what /v1/chat/completions gets, both times. */
export function proofRequest({ prompt, temperature, seed, maxTokens }) {
  const messages = [{ role: "user", content: prompt }];
  return { messages, temperature, seed, max_tokens: maxTokens, logits_sha256: true, return_token_ids: true };
}

/**
 * Runs a proof and returns its record, in which both answers have their receipts, save in the fast tier, which has none.
 * `said` gets a line on what is going on, `grown` a run ("alone" or "among") with its answer so far. Refusal where the server refuses; aborting `signal` ends everything.
 */
export async function prove(request, signal, said, grown) {
  const { model, fingerprint, tier } = await state();
  said("Running it alone …");
  const asked = { ...request, receipt: tier !== "fast" };
  const alone = await run(asked, signal, answer => grown("alone", answer));
  const bodies = neighbourBodies(request.max_tokens), ending = new AbortController();
  const end = () => ending.abort();
  signal.addEventListener("abort", end);
  let among;
  try {
    said(`Starting ${NUM_NEIGHBOURS} other requests …`);
    const neighbours = startNeighbours(bodies, ending.signal);
    await untilRunning(neighbours, bodies.length, signal);
    said("Running it again, among them …");
    among = await run(asked, signal, answer => grown("among", answer));
  } finally {
    end();
    signal.removeEventListener("abort", end);
  }
  const about = { kind: "samebits record of a proof", version: 1, made: new Date().toISOString() };
  const verdict = verdictOf(alone, among);
  return { ...about, model, fingerprint, tier, ...verdict, request, alone, among, neighbours: bodies };
}

async function state() {
  const seen = await look();
  if (!seen) throw new Refusal("what it is doing cannot be seen");
  return seen;
}

async function untilRunning(neighbours, numCalls, signal) {
  for (;;) {
    const { num_running: numRunning } = await state();
    signal.throwIfAborted();
    if (neighbours.failure()) throw new Refusal(`the other requests are refused: ${neighbours.failure().message}`);
    if (numRunning >= NUM_NEIGHBOURS || neighbours.numEnded() === numCalls) return;
    await pause();
  }
}

/** Watches the server's steps from a state on: `size()` is the most sequences that one of them decoded. */
function watchSteps(state) {
  let seen = state.num_steps, most = 0, isDone = false;
  const watching = (async () => {
    for (let isLast = false; !isLast;) {
      isLast = isDone; // one more look when all is done
      const now = await look();
      const fresh = now && now.num_steps > seen ? now.steps.slice(-(now.num_steps - seen)) : [];
      most = Math.max(most, ...fresh.map(step => step.num_decodes));
      seen = now?.num_steps ?? seen;
      if (!isDone) await pause();
    }
  })();
  const end = () => {
    isDone = true;
    return watching;
  };
  return { end, size: () => most };
}

/** One run: its answer, its hash, and the largest batch that the server decoded meanwhile. */
async function run(request, signal, grown) {
  const answer = { text: "", token_ids: [], logits_sha256: null, finish_reason: null, usage: null, largest_batch: 0 };
  answer.receipt = null;
  const steps = watchSteps(await state());
  try {
    const body = { ...request, stream_options: { include_usage: true } };
    for await (const event of postEvents("v1/chat/completions", body, signal)) {
      for (const choice of event.choices) {
        answer.text += (choice.delta.reasoning_content ?? "") + (choice.delta.content ?? "");
        answer.token_ids.push(...(choice.token_ids ?? []));
        answer.logits_sha256 = choice.logits_sha256 ?? answer.logits_sha256;
        answer.receipt = choice.receipt ?? answer.receipt;
        answer.finish_reason = choice.finish_reason ?? answer.finish_reason;
      }
      answer.usage = event.usage ?? answer.usage;
      grown({ ...answer, largest_batch: steps.size() });
    }
  } finally {
    await steps.end();
    answer.largest_batch = steps.size();
  }
  grown(answer);
  return answer;
}

/** "same", "different" or "nothing proven", and in words why. */
export function verdictOf(alone, among) {
  const nothing = why => ({ verdict: "nothing proven", why });
  if (!alone.logits_sha256 || !among.logits_sha256) return nothing("The server sent no hash of its logits.");
  const parts = { logits_sha256: "the logits' hashes", token_ids: "the tokens", text: "the texts", receipt: "the receipts" };
  const differs = Object.keys(parts).filter(name => JSON.stringify(alone[name]) !== JSON.stringify(among[name]));
  if (differs.length) {
    return { verdict: "different", why: `What differs: ${differs.map(name => parts[name]).join(", ")}.` };
  }
  if (alone.largest_batch > 1) return nothing("Someone else used the server: the first run was not alone.");
  if (among.largest_batch < 2) return nothing("The others had ended before the second run. Ask for fewer tokens.");
  const size = among.largest_batch;
  return { verdict: "same", why: `Every logit of ${alone.token_ids.length} tokens, alone and in a batch of ${size}.` };
}
