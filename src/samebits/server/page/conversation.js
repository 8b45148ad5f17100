// What a conversation sends, and what its turns become. No elements here.

import { postEvents, postJson, Refusal } from "./api.js";

/** Whether a turn goes to the model again: a message that was never answered would spoil what follows. */
export const isHistory = turn => turn.answer !== "" && !turn.isLeftOut;

function messages(conversation, turn) {
  const { system } = conversation.settings, sent = system.trim() ? [{ role: "system", content: system }] : [];
  for (const earlier of conversation.turns) {
    if (earlier === turn || !isHistory(earlier)) continue;
    sent.push({ role: "user", content: earlier.user }, { role: "assistant", content: earlier.answer });
  }
  return [...sent, { role: "user", content: turn.user }];
}

function requestBody(conversation, turn, seed) {
  const { temperature, maxTokens } = conversation.settings;
  const stated = Object.entries({ temperature, max_tokens: maxTokens }).filter(([, value]) => value !== null);
  const messagesToSend = messages(conversation, turn), options = { include_usage: true };
  return { messages: messagesToSend, seed, ...Object.fromEntries(stated), stream_options: options };
}

/** Leaves the oldest turn out of what is sent from now on; false where there is none. */
function leaveOutOldest(conversation, turn) {
  const oldest = conversation.turns.find(earlier => earlier !== turn && isHistory(earlier));
  if (oldest) oldest.isLeftOut = true;
  return Boolean(oldest);
}

/**
 * Fills a turn, the last of its conversation, with the model's answer; `grown` is called as it grows.
 * Nothing is raised: what goes wrong stands in `problem`. With `mayForget`, old turns are left out until all fits.
 */
export async function answer(conversation, turn, signal, grown, mayForget = false) {
  Object.assign(turn, { answer: "", reasoning: "", note: "", problem: null, tooLong: null });
  try {
    await stream(conversation, turn, signal, grown);
    if (!turn.answer) turn.problem = "The model ended its turn without an answer.";
  } catch (error) {
    if (error.name === "AbortError") {
      turn.note = [turn.note, "stopped"].filter(Boolean).join(", ");
      if (!turn.answer) turn.problem = "Stopped before the answer began.";
    } else if (error.isTooLong && mayForget && leaveOutOldest(conversation, turn)) {
      await answer(conversation, turn, signal, grown, true);
    } else {
      if (error.isTooLong) await explainLength(turn, error);
      else turn.problem = `Not answered: ${error.message}.`;
      if (!(error instanceof Refusal)) console.error(error);
    }
  }
}

async function stream(conversation, turn, signal, grown) {
  const seed = conversation.settings.seed ?? crypto.getRandomValues(new Uint32Array(1))[0];
  let firstAt = null, numTokens = 0, cut = "";
  for await (const event of postEvents("v1/chat/completions", requestBody(conversation, turn, seed), signal)) {
    for (const { delta, finish_reason: reason } of event.choices) {
      turn.answer += delta.content ?? "";
      turn.reasoning += delta.reasoning_content ?? "";
      if (delta.content || delta.reasoning_content) numTokens += 1;
      if (reason === "length") cut = "cut at its limit of tokens, ";
    }
    numTokens = event.usage?.completion_tokens ?? numTokens;
    firstAt ??= numTokens ? performance.now() : null;
    const seconds = (performance.now() - (firstAt ?? performance.now())) / 1000;
    const speed = seconds > 0 && numTokens > 1 ? `, ${((numTokens - 1) / seconds).toFixed(1)} tokens/s` : "";
    turn.note = `${cut}${numTokens} tokens${speed}, seed ${seed}`;
    grown();
  }
}

/** Says in the turn what exactly is too long: its message, or the conversation with it. */
async function explainLength(turn, error) {
  const kept = "The rest of the conversation is kept.";
  try {
    const { count, max_model_len: maxLen } = await postJson("tokenize", { text: turn.user });
    const own = count.toLocaleString("en"), context = maxLen.toLocaleString("en");
    turn.tooLong = count >= maxLen ? "message" : "conversation";
    const what = turn.tooLong === "message"
      ? `This message is too long: it has ${own} tokens, and`
      : `The conversation is too long with this message, which has ${own} tokens:`;
    turn.problem = `${what} the context holds ${context}. ${kept}`;
  } catch { // too long even to be counted
    turn.tooLong = "message";
    const own = turn.user.length.toLocaleString("en");
    turn.problem = `This message is too long: it has ${own} characters (${error.message}). ${kept}`;
  }
}
