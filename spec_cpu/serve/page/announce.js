// What a screen reader says without being asked.

import { byId, el } from "./dom.js";
import { parse, textOf } from "./markdown.js";

const KEPT = 20; // parts in the log: it is for the ear, the page has them all

/**
 * Say this, after what is being said.
 *
 * @param {string} text
 */
export function announce(text) {
  const log = byId("announcer");
  log.append(el("p", {}, text));
  while (log.childElementCount > KEPT) log.firstElementChild.remove();
}

/** Reads a growing answer out, a finished block at a time: nothing is said twice. */
export class Reader {
  constructor() {
    this.read = 0;
  }

  /**
   * @param {string} text so far
   * @param {boolean} whole
   */
  follow(text, whole) {
    const blocks = parse(text).filter((block) => block.type !== "blank");
    const finished = whole ? blocks : blocks.slice(0, -1);
    for (const block of finished.slice(this.read)) {
      const words = textOf(block, text).trim();
      if (words) announce(words);
    }
    this.read = Math.max(this.read, finished.length);
  }
}
