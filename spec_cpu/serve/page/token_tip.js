// What is known of a token, beside it: under the pointer, at a touch, or where the keyboard is.

import { byId, el } from "./dom.js";
import { ORIGINS, sourceClass, sourceName } from "./tints.js";

/** @typedef {import("./types.js").Token} Token */

const GAP = 6; // pixels between a token and what is said of it

const SAID = {
  accepted: "was drafted, and stayed",
  correction: "replaced a draft that was turned down",
  bonus: "came on top of a draft that stayed whole",
  plain: "came without a draft",
};

export class TokenTip {
  /** @param {import("./chat.js").Chat} chat */
  constructor(chat) {
    this.chat = chat;
    this.tip = byId("tip");
    /** @type {HTMLElement | null} */
    this.anchor = null;
    const thread = byId("messages");
    thread.addEventListener("pointerover", (/** @type {Event} */ event) => this.#over(event));
    thread.addEventListener("focusin", (/** @type {Event} */ event) => this.#focus(event));
    thread.addEventListener("focusout", () => this.hide());
    thread.addEventListener("pointerleave", () => this.hide());
    thread.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => this.#key(event));
    byId("thread").addEventListener("scroll", () => this.anchor && this.#place(this.anchor));
  }

  /** @returns {boolean} whether it was shown */
  hide() {
    const shown = !this.tip.hidden;
    this.tip.hidden = true;
    this.anchor?.removeAttribute("aria-describedby");
    this.anchor = null;
    return shown;
  }

  /** @param {Event} event */
  #over(event) {
    const token = tokenOf(event.target);
    if (token) this.#show(token);
    else if (!tokenOf(document.activeElement)) this.hide();
  }

  /** @param {Event} event */
  #focus(event) {
    const token = tokenOf(event.target);
    if (token) this.#show(token);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const token = tokenOf(event.target);
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (!token || step === undefined) return;
    event.preventDefault();
    const all = [...(token.closest(".message")?.querySelectorAll(".token") ?? [])].filter(isSeen);
    const to = Math.max(0, Math.min(all.length - 1, all.indexOf(token) + step));
    token.setAttribute("tabindex", "-1");
    all[to].setAttribute("tabindex", "0");
    /** @type {HTMLElement} */ (all[to]).focus();
  }

  /** @param {HTMLElement} anchor */
  #show(anchor) {
    if (anchor === this.anchor) return;
    const id = anchor.closest(".message")?.getAttribute("data-id");
    const message = this.chat.messages.find((one) => one.id === id);
    const token = message?.tokens?.[Number(anchor.dataset.token)];
    if (!token) return;
    this.hide();
    this.anchor = anchor;
    this.tip.replaceChildren(...describe(token));
    this.tip.hidden = false;
    anchor.setAttribute("aria-describedby", "tip");
    this.#place(anchor);
  }

  /** @param {HTMLElement} anchor */
  #place(anchor) {
    const [at] = anchor.getClientRects();
    const { width, height } = this.tip.getBoundingClientRect();
    const left = Math.max(GAP, Math.min(at.left, innerWidth - width - GAP));
    const below = at.bottom + GAP + height < innerHeight;
    this.tip.style.left = `${left}px`;
    this.tip.style.top = `${below ? at.bottom + GAP : at.top - height - GAP}px`;
  }
}

/** @param {EventTarget | Element | null} target @returns {HTMLElement | null} */
function tokenOf(target) {
  return target instanceof Element ? target.closest(".token") : null;
}

/** @param {Element} element */
function isSeen(element) {
  return element.getClientRects().length > 0;
}

/** @param {Token} token */
function describe({ text, origin, sources, alternatives }) {
  const [said, word] = [SAID[origin] ?? "", ORIGINS[origin] ?? origin];
  const head = el(
    "p",
    { class: "tip-head" },
    el("code", {}, visible(text)),
    " ",
    el("span", { class: `kind ${origin}` }, word),
  );
  const who = sources.map((source) =>
    el("span", { class: `source ${sourceClass(source)}` }, sourceName(source)),
  );
  const by = who.length > 0 && el("p", { class: "tip-by" }, "by ", ...who);
  const rows = alternatives.map(([other, chance]) => {
    const share = `${(100 * chance).toFixed(chance < 0.1 ? 1 : 0)} %`;
    const bar = el("meter", { min: "0", max: "1", value: chance, "aria-hidden": "true" });
    return el("li", {}, el("code", {}, visible(other)), bar, el("span", {}, share));
  });
  const others =
    rows.length > 0 &&
    el("div", {}, el("p", { class: "tip-by" }, "Also drafted here:"), el("ul", {}, ...rows));
  return [head, el("p", {}, said), by, others].filter(Boolean);
}

/** @param {string} text */
function visible(text) {
  return text.replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/^ | $/g, "␣") || "(no text)";
}
