// Starts the page: two views, of which the address says which is shown, and the server's state beside them.

import { startChat } from "./chat.js";
import { at, notice } from "./dom.js";
import { watch } from "./pool.js";
import { startProof } from "./proof_view.js";

function route() {
  const isProof = location.hash === "#prove";
  for (const [view, link, isShown] of [["chat", "to-chat", !isProof], ["prove", "to-prove", isProof]]) {
    at(view).hidden = !isShown;
    if (isShown) at(link).setAttribute("aria-current", "page");
    else at(link).removeAttribute("aria-current");
  }
}

addEventListener("hashchange", () => { notice(""); route(); });
route();
startChat();
startProof();
watch();
