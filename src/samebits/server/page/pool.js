// What the server is doing, drawn from /state: the running batch, the pool of pages, the last steps.

import { getJson } from "./api.js";
import { at } from "./dom.js";

const WIDTH = 1000, SLOTS = 32, MOMENTS = 160;
const IDLE_MS = 500, BUSY_MS = 150;
const past = []; // of the pool: [share held, share kept for prefixes]

/** Looks at the server, again and again, for as long as the page is open. */
export async function watch() {
  const state = await look();
  setTimeout(watch, state?.num_running || state?.num_waiting ? BUSY_MS : IDLE_MS);
}

/** The server's state, which is drawn too; null where it gives none. */
export async function look() {
  try {
    const state = await getJson("state");
    draw(state);
    return state;
  } catch (error) {
    at("model").textContent = error.message;
    return null;
  }
}

function draw(state) {
  at("model").textContent = `${state.model} · ${state.fingerprint}`;
  at("tier").textContent = state.tier;
  at("tier").hidden = false;
  drawBatch(state);
  drawPool(state);
  drawSteps(state.steps);
}

/** Bars on each other: [[share, kind], ...] in columns of `width`, of which they fill `fill`. */
const stacked = (columns, width, height, fill = 0.8) => columns.flatMap((parts, i) => {
  let top = height;
  return parts.map(([share, kind]) => {
    top -= height * share;
    return [i * width, top, width * fill, height * share, kind];
  });
});

function bars(svg, height, list) {
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.replaceChildren(...list.map(([x, y, width, tall, kind]) => {
    const rect = document.createElementNS("http://www.w3.org/2000/svg", "rect");
    const attributes = { x, y, width, height: tall, class: kind };
    for (const [name, value] of Object.entries(attributes)) rect.setAttribute(name, value);
    return rect;
  }));
}

/** A column per sequence, as tall as it has tokens; those found in the cache are golden. */
function drawBatch({ running, num_running: numRunning, num_waiting: numWaiting, preemptions }) {
  const width = WIDTH / Math.max(SLOTS, running.length), most = Math.max(64, ...running.map(s => s.known));
  const columns = running.map(s => [[s.cached / most, "prompt"], [(s.known - s.cached) / most, "decode"]]);
  bars(at("batch"), 80, stacked(columns, width, 80));
  at("batch-text").textContent = `${numRunning} running, ${numWaiting} waiting, ${preemptions} preempted so far`;
}

function drawPool({ pages: { all, used, idle } }) {
  const held = used / all, kept = idle / all, width = WIDTH / MOMENTS;
  bars(at("pool"), 16, [[0, 0, WIDTH * held, 16, "held"], [WIDTH * held, 0, WIDTH * kept, 16, "kept"]]);
  past.push([held, kept]);
  past.splice(0, past.length - MOMENTS);
  const columns = past.map(([h, k]) => [[h, "held"], [k, "kept"]]);
  bars(at("pool-past"), 50, stacked(columns, width, 50, 1));
  at("pool-text").textContent = `${used} held, ${idle} kept for their prefix, of ${all}`;
}

function drawSteps(steps) {
  const most = Math.max(1, ...steps.map(s => s.num_decodes + s.num_prefill_tokens));
  const columns = steps.map(s => [[s.num_decodes / most, "decode"], [s.num_prefill_tokens / most, "prompt"]]);
  bars(at("steps"), 80, stacked(columns, WIDTH / Math.max(60, steps.length), 80));
}
