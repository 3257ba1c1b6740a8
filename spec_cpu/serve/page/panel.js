// How it is going, beside the conversation.

import { Gone, state } from "./api.js";
import { costCurve } from "./chart.js";
import { byId, el } from "./dom.js";
import { doing } from "./speed.js";
import { sourceClass, sourceName } from "./tints.js";

/** @typedef {import("./types.js").ServerState} ServerState */

const BUSY = 1000; // milliseconds between looks while an answer is under way
const IDLE = 4000;

/** Whose share of a pass it is. */
const OWNERS = { this: "This conversation", yours: "Another of yours", other: "Somebody else" };

export class Panel {
  /**
   * @param {import("./chat.js").Chat} chat
   * @param {() => void} lost called when the server cannot be reached
   */
  constructor(chat, lost) {
    this.chat = chat;
    this.lost = lost;
    this.element = byId("panel");
    /** @type {ServerState | null} */
    this.state = null;
    this.drawn = "";
    for (const event of ["open", "messages"]) chat.addEventListener(event, () => this.refresh());
    chat.addEventListener("growth", () => this.#soon());
    for (const event of ["asked", "ended"]) chat.addEventListener(event, () => this.look());
    document.addEventListener("visibilitychange", () => this.look());
    this.timer = 0;
    this.asked = false;
  }

  get isSeen() {
    return !this.element.hidden && document.visibilityState === "visible";
  }

  /** Ask the server now and then, as long as somebody can see it. */
  async look() {
    clearTimeout(this.timer);
    if (!this.isSeen) return;
    try {
      this.state = await state();
    } catch (error) {
      if (error instanceof Gone) this.lost(); // what is known of it stays
    }
    this.refresh();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.look(), this.chat.writings.size ? BUSY : IDLE);
  }

  #soon() {
    if (this.asked || !this.isSeen) return;
    this.asked = true;
    setTimeout(() => {
      this.asked = false;
      this.#showFigures();
    }, 200);
  }

  refresh() {
    if (this.element.hidden) return;
    this.#showFigures();
    if (!this.state) return;
    this.#showSources(this.state);
    this.#showCurve(this.state);
    this.#showShares(this.state);
  }

  #showFigures() {
    const answer = this.chat.path.findLast((message) => message.role === "assistant");
    const { perStep, speedup, kept } = doing(answer ?? {}, this.state?.verify ?? []);
    byId("per-step").textContent = perStep ? perStep.toFixed(2) : "–";
    byId("speedup").textContent = speedup ? `${speedup.toFixed(2)}×` : "–";
    byId("kept").textContent = kept === null ? "–" : `${Math.round(100 * kept)} %`;
  }

  /** @param {ServerState} state */
  #showSources({ by_source: sources }) {
    const rows = Object.entries(sources).map(([name, { drafted, accepted }]) => {
      const share = drafted ? accepted / drafted : 0;
      const bar = el(
        "span",
        { class: "bar" },
        el("span", { class: `filled ${sourceClass(name)}` }),
      );
      bar.firstChild.style.width = `${100 * share}%`;
      const figures = `${Math.round(100 * share)} %`;
      const counts = el(
        "span",
        { class: "counts" },
        `${accepted.toLocaleString()} of ${drafted.toLocaleString()} stayed`,
      );
      return el(
        "li",
        {},
        el("span", { class: "name" }, sourceName(name)),
        el("span", {}, figures),
        bar,
        counts,
      );
    });
    byId("sources").replaceChildren(...rows);
    byId("no-sources").hidden = rows.length > 0;
  }

  /** @param {ServerState} state */
  #showCurve({ verify, width }) {
    const key = JSON.stringify([verify, width]);
    if (key === this.drawn) return;
    this.drawn = key;
    byId("curve").replaceChildren(...(verify.length > 1 ? [costCurve(verify, width)] : []));
    byId("curve-legend").hidden = verify.length < 2;
    const at = verify[Math.min(width, verify.length) - 1];
    byId("width").textContent =
      width && at
        ? `Latest: ${width} token${width > 1 ? "s" : ""} for ${at.toFixed(2)} plain steps`
        : "";
    byId("no-curve").hidden = verify.length > 1;
  }

  /**
   * @param {number} id of a share
   * @param {number} count of all shares
   * @returns {keyof typeof OWNERS}
   */
  #whose(id, count) {
    const { writing, writings } = this.chat;
    if (writing && (writing.share === id || (count === 1 && writings.size === 1))) return "this";
    return [...writings.values()].some(({ share }) => share === id) ? "yours" : "other";
  }

  /** @param {ServerState} state */
  #showShares({ shares, width, active, waiting, slots }) {
    const parts = (active ? shares : []).map((share) => {
      const who = this.#whose(share.id, shares.length);
      const words = `${OWNERS[who]}: ${share.rows} of ${width}, ${share.drafted} drafted`;
      const bar = el("span", { class: `share ${who}`, title: words });
      bar.style.flexGrow = String(share.rows);
      return { bar, item: el("li", {}, el("span", { class: `dot ${who}` }), words) };
    });
    byId("shares").replaceChildren(...parts.map(({ bar }) => bar));
    byId("share-list").replaceChildren(...parts.map(({ item }) => item));
    byId("load").textContent =
      `${active} of ${slots} at work${waiting ? `, ${waiting} waiting` : ""}`;
  }
}
