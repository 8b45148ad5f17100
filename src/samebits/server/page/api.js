// Calls of the server's API: whole answers, answers as events, and refusals as one kind of error.

export class Refusal extends Error {
  constructor(message, status = 0, code = null) {
    super(message);
    Object.assign(this, { status, code });
  }

  get isTooLong() {
    return this.code === "context_length_exceeded" || this.code === "body_too_large";
  }
}

async function answered(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("no connection to the server");
  }
  if (response.ok) return response;
  const content = await response.json().catch(() => ({}));
  const { message, code } = content.error ?? {};
  throw new Refusal(message ?? `the server answered ${response.status}`, response.status, code ?? null);
}

export async function getJson(path) {
  return (await answered(path, {})).json();
}

function posted(path, body, signal) {
  const headers = { "content-type": "application/json" };
  return answered(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

export async function postJson(path, body) {
  return (await posted(path, body)).json();
}

/** The events of a streamed answer, parsed; Refusal where the server refuses, or fails in mid-stream. */
export async function* postEvents(path, body, signal) {
  const response = await posted(path, { ...body, stream: true }, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let held = ""; ;) {
    const { value, done } = await reader.read().catch(error => {
      if (error.name === "AbortError") throw error;
      throw new Refusal("the connection broke off");
    });
    if (done) throw new Refusal("the answer broke off");
    const parts = (held + value).split("\n\n");
    held = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new Refusal(event.error.message, 500, event.error.code);
      yield event;
    }
  }
}
