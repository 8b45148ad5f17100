// The proof as a shell script, for whoever would rather not trust a page.

import { neighbourBodies } from "./neighbours.js";

const quoted = text => `'${text.replaceAll("'", "'\\''")}'`;

/** A script that prints the hash, how many others run then, and the hash again; `address` ends in a slash. */
export function curlScript(address, request) {
  const post = (path, body) =>
    `curl -sS ${quoted(address + path)} -H 'Content-Type: application/json' -d ${quoted(JSON.stringify(body))}`;
  const start = body => `${post("v1/completions", body)} > /dev/null & others="$others $!"`;
  return [
    "# with an API key, add to each: -H \"Authorization: Bearer $KEY\"",
    `ask() { ${post("v1/chat/completions", request)} | grep -o '"logits_sha256": *"[0-9a-f]*"'; }`,
    "ask; others=",
    ...neighbourBodies(request.max_tokens).map(start),
    `sleep 1; curl -sS ${quoted(`${address}state`)} | grep -o '"num_running": *[0-9]*'`,
    "ask",
    "kill $others 2> /dev/null || true",
  ].join("\n");
}
