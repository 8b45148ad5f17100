// Long work in slices, so that the page stays usable. Work is a generator: it yields wherever it may be interrupted.

const SLICE_MS = 20;
const waiting = []; // works under way; the first one goes on next
let isScheduled = false;

/** Does the work, the first slice of it at once if nothing else is under way. Returns a function that gives it up. */
export function start(work) {
  const entry = { work, isGivenUp: false };
  waiting.push(entry);
  if (!isScheduled) goOn();
  return () => { entry.isGivenUp = true; };
}

/** Does the work to its end now, and returns its result. */
export function whole(work) {
  let step = work.next();
  while (!step.done) step = work.next();
  return step.value;
}

function goOn() {
  const end = performance.now() + SLICE_MS;
  isScheduled = true; // work that starts other work does not begin it here
  try {
    while (waiting.length && performance.now() < end) {
      const { work, isGivenUp } = waiting[0];
      if (isGivenUp || work.next().done) waiting.shift();
    }
  } catch (error) { // the other works go on
    waiting.shift();
    throw error;
  } finally {
    isScheduled = waiting.length > 0;
    if (isScheduled) setTimeout(goOn);
  }
}
