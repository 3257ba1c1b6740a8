// Markdown on the page. What has not changed since the last time is left alone.

import { drawing, el } from "./dom.js";
import { parse, textOf } from "./markdown.js";
import { copyButton } from "./clipboard.js";

/** @typedef {import("./markdown.js").Node} Node */
/** @typedef {import("./tints.js").Tints} Tints */

const TAGS = {
  paragraph: "p",
  quote: "blockquote",
  item: "li",
  strong: "strong",
  emphasis: "em",
  deleted: "del",
  span: "code",
};

/** An element that shows a growing text. */
export class MarkdownView {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    /** @type {string[]} */
    this.keys = [];
  }

  /**
   * @param {string} source
   * @param {Tints | null} tints where each token came from, if that is shown
   */
  show(source, tints) {
    const blocks = parse(source).filter((block) => tints || block.type !== "blank");
    const keys = blocks.map((block) => keyOf(block, source, tints));
    let same = 0;
    while (same < keys.length && keys[same] === this.keys[same]) same += 1;
    while (this.element.childNodes.length > same) this.element.lastChild?.remove();
    const painter = new Painter(source, tints);
    this.element.append(...blocks.slice(same).map((block) => painter.node(block)));
    this.keys = keys;
  }
}

/**
 * @param {Node} block
 * @param {string} source
 * @param {Tints | null} tints
 */
function keyOf(block, source, tints) {
  const version = tints ? tints.version(block.end) : "";
  return `${block.type} ${version} ${source.slice(block.start, block.end)}`;
}

class Painter {
  /**
   * @param {string} source
   * @param {Tints | null} tints
   */
  constructor(source, tints) {
    this.source = source;
    this.tints = tints;
  }

  /**
   * @param {Node} node
   * @returns {globalThis.Node | string}
   */
  node(node) {
    switch (node.type) {
      case "text":
        return this.#leaf(node, "");
      case "mark":
        return this.tints ? this.#leaf(node, "mark") : "";
      case "heading":
        return el(`h${Math.min((node.level ?? 1) + 2, 6)}`, {}, ...this.#children(node));
      case "code":
        return this.#code(node);
      case "list":
        return this.#list(node);
      case "rule":
        return el("div", { class: "rule" }, el("hr"), ...this.#children(node));
      case "blank":
        return el("div", { class: "blank" }, ...this.#children(node));
      case "table":
        return this.#table(node);
      case "link":
        return this.#link(node);
      default:
        return el(TAGS[/** @type {keyof typeof TAGS} */ (node.type)], {}, ...this.#children(node));
    }
  }

  /** @param {Node} node */
  #children(node) {
    return node.children.map((child) => this.node(child));
  }

  /**
   * @param {Node} node
   * @param {string} kind
   */
  #leaf(node, kind) {
    if (this.tints) return this.tints.spans(this.source, node.start, node.end, kind);
    return document.createTextNode(this.source.slice(node.start, node.end));
  }

  /** @param {Node} node */
  #list(node) {
    if (node.first === undefined) return el("ul", {}, ...this.#children(node));
    return el("ol", { start: node.first }, ...this.#children(node));
  }

  /** @param {Node} node */
  #code(node) {
    const text = textOf(node, this.source);
    const label = el("span", { class: "language" }, node.language || "text");
    const copy = copyButton("Copy this code", () => text);
    const code = el("code", {}, ...this.#children(node));
    const pre = el("pre", { tabindex: "0", "aria-label": "Code", role: "region" }, code);
    return el("div", { class: "code" }, el("div", { class: "code-head" }, label, copy), pre);
  }

  /** @param {Node} node */
  #table(node) {
    const [head, below, ...rows] = node.children;
    const thead = el("thead", {}, el("tr", {}, ...this.#cells(head, "th")));
    const columns = thead.firstElementChild.childElementCount;
    const marks =
      this.tints && el("tr", {}, el("td", { colspan: columns }, ...this.#children(below)));
    const lines = rows.map((row) => el("tr", {}, ...this.#cells(row, "td")));
    const body = el("tbody", {}, marks, ...lines);
    const given = { class: "table", tabindex: "0", role: "region", "aria-label": "Table" };
    return el("div", given, el("table", {}, thead, body));
  }

  /**
   * The cells of a row. Marks between them stand in the cell that follows, or in the last.
   *
   * @param {Node} row
   * @param {string} tag
   */
  #cells(row, tag) {
    const made = [];
    let before = [];
    for (const child of row.children) {
      if (child.type !== "cell") {
        before.push(this.node(child));
        continue;
      }
      const given = { class: `align-${child.align}`, scope: tag === "th" && "col" };
      made.push(el(tag, given, ...before, ...this.#children(child)));
      before = [];
    }
    made.at(-1)?.append(...before);
    return made;
  }

  /** @param {Node} node a link: its target was checked by the parser */
  #link(node) {
    const given = { href: node.href, target: "_blank", rel: "noopener noreferrer nofollow" };
    return el("a", given, ...this.#children(node), drawing("outside"));
  }
}
