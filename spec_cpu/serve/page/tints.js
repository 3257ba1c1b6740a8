// Where each token came from, as spans in the text.

import { el } from "./dom.js";

/** @typedef {import("./types.js").Token} Token */

const PROBE = 48; // characters that find a text among its tokens

/** What sources are called on the page, and the hue of each. */
const FAMILIES = {
  ngram: "n-gram",
  recycled: "recycled",
  model: "draft model",
  eagle: "head",
  medusa: "head",
};

/**
 * @param {string} source as the server names it
 * @returns {string} as a person reads it
 */
export function sourceName(source) {
  return FAMILIES[/** @type {keyof typeof FAMILIES} */ (source)] ?? source;
}

/**
 * @param {string} source
 * @returns {string} a class of the style sheet
 */
export function sourceClass(source) {
  return `from-${sourceName(source).replace(/\W+/g, "-")}`;
}

/** @type {Record<Token["origin"], string>} */
export const ORIGINS = {
  accepted: "accepted",
  correction: "corrected",
  bonus: "bonus",
  plain: "plain",
};

/** The tokens of a text, by place. */
export class Tints {
  /**
   * @param {string} text as it is shown
   * @param {Token[]} tokens together the raw text of the answer, which `text` is a part of
   * @param {number} after characters of the raw text that stand before it, at least
   */
  constructor(text, tokens, after = 0) {
    this.tokens = tokens;
    const raw = tokens.map((token) => token.text).join("");
    const offset = text.startsWith(raw.slice(0, text.length))
      ? 0
      : raw.indexOf(text.slice(0, PROBE), after);
    let end = offset < 0 ? 0 : -offset;
    /** Where each token ends in the text. @type {number[]} */
    this.ends = offset < 0 ? [] : tokens.map((token) => (end += token.text.length));
  }

  /**
   * Changes when tokens come in for the text before `end`.
   *
   * @param {number} end
   */
  version(end) {
    return Math.min(end, this.ends.at(-1) ?? 0);
  }

  /**
   * @param {string} source
   * @param {number} start
   * @param {number} end
   * @param {string} kind "mark" or ""
   * @returns {DocumentFragment} [start, end) of the source, a span a token
   */
  spans(source, start, end, kind) {
    const made = document.createDocumentFragment();
    let index = this.#at(start);
    for (let at = start; at < end; index += 1) {
      const until = Math.min(this.ends[index] ?? end, end);
      if (until <= at) continue;
      made.append(this.#span(source.slice(at, until), index, kind));
      at = until;
    }
    return made;
  }

  /**
   * @param {number} place
   * @returns {number} the first token that ends behind it
   */
  #at(place) {
    let [low, high] = [0, this.ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.ends[middle] <= place) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /**
   * @param {string} text
   * @param {number} index
   * @param {string} kind
   */
  #span(text, index, kind) {
    const token = this.tokens[index];
    if (!token || index >= this.ends.length) return el("span", { class: kind }, text);
    const from = token.sources.length ? sourceClass(token.sources[0]) : "";
    const line = /^\s*\n\s*$/.test(text) ? "line-end" : "";
    const names = ["token", token.origin, from, kind, line].filter(Boolean).join(" ");
    return el("span", { class: names, "data-token": index, tabindex: "-1" }, text);
  }
}
