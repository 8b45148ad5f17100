// The 31 other requests of a proof: different prompts of different lengths, in three calls of the API, because a
// browser opens no more than six connections to a server. Every prompt of a call runs as a request of its own.

import { postEvents } from "./api.js";

export const NUM_NEIGHBOURS = 31;
const NUM_CALLS = 3;
const SUBJECTS = [
  "a lighthouse", "the tides", "bread", "a chess game", "winter", "an old map", "bees", "the moon", "a violin", "rust",
  "rivers", "a railway", "salt", "glass", "the desert", "a garden", "thunder", "clocks", "paper", "a harbour", "wolves",
  "coffee", "mountains", "a letter", "silk", "the stars", "a bridge", "snow", "a market", "whales", "fire",
];
const OPENINGS = ["Write about", "A short story of", "What everyone should know about", "Three questions on"];
const FILLER = " It was late, and nobody else was in the room.";

/**
 * Bodies for /v1/completions that keep their sequences running for much longer than an answer of `numTokens`, even
 * where this page is slow to ask for it; they are cut when it is there.
 */
export function neighbourBodies(numTokens) {
  const prompts = SUBJECTS.map((subject, i) => `${OPENINGS[i % OPENINGS.length]} ${subject}.${FILLER.repeat(i % 5)}`);
  return Array.from({ length: NUM_CALLS }, (_, call) => ({
    prompt: prompts.filter((_prompt, i) => i % NUM_CALLS === call),
    temperature: 0.5 + call / 2, seed: 100 + call, max_tokens: 8 * numTokens + 256, ignore_eos: true,
  }));
}

/**
 * Starts the neighbours. `numEnded()` says how many calls have come to their end, `failure()` why one did too early;
 * aborting `signal` ends them all.
 */
export function startNeighbours(bodies, signal) {
  let numEnded = 0, failed = null;
  for (const body of bodies) {
    (async () => {
      try {
        for await (const event of postEvents("v1/completions", body, signal)) void event;
      } catch (error) {
        if (error.name !== "AbortError") failed ??= error;
      }
      numEnded += 1;
    })();
  }
  return { numEnded: () => numEnded, failure: () => failed };
}
