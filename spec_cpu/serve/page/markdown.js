// Markdown to a tree, without losing a character: every character of the source is in one leaf, as
// text or as a mark (what makes the form: `**`, `# `, fences). HTML is text like any other.

import { Emitter, inline } from "./markdown_inline.js";

/**
 * A part of the source. Leaves ("text", "mark") have no children.
 *
 * @typedef {object} Node
 * @property {string} type
 * @property {number} start
 * @property {number} end
 * @property {Node[]} children
 * @property {number} [level] of a heading
 * @property {string} [language] of code
 * @property {number} [first] number of an ordered list's first item; absent: bullets
 * @property {string} [href] of a link
 * @property {string} [align] of a cell
 */

/**
 * A line of a block. What containers took from it, [from, start), has not been emitted yet.
 *
 * @typedef {object} Line
 * @property {number} from
 * @property {number} start
 * @property {number} end without the line's end
 * @property {number} next with it
 */

const MOST_NESTED = 12; // containers in each other; deeper ones are text
const FENCE = /^( {0,3})(`{3,}(?=[^`]*$)|~{3,})[ \t]*([^\s`]*)/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+|$)/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:[ \t]+(?=\S)|[ \t]*$)/;
const DELIMITERS = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;

/**
 * @param {string} source
 * @returns {Node[]} its blocks; together they are the whole source
 */
export function parse(source) {
  return new Parser(source).blocks(linesOf(source), 0);
}

/**
 * @param {Node} node
 * @param {string} source
 * @returns {string} what of it is text, for who copies or listens
 */
export function textOf(node, source) {
  if (node.type === "text") return source.slice(node.start, node.end);
  const inner = node.children.map((child) => textOf(child, source)).join("");
  return ["item", "cell", "row"].includes(node.type) ? `${inner} ` : inner;
}

/**
 * @param {string} source
 * @returns {Line[]}
 */
function linesOf(source) {
  const lines = [];
  for (let start = 0; start < source.length;) {
    const found = source.indexOf("\n", start);
    const end = found < 0 ? source.length : found;
    const next = found < 0 ? end : end + 1;
    lines.push({ from: start, start, end, next });
    start = next;
  }
  return lines;
}

/**
 * @param {string} type
 * @param {Node[]} children
 * @param {object} [more]
 * @returns {Node}
 */
function block(type, children, more = {}) {
  return {
    type,
    children,
    start: children[0].start,
    end: children[children.length - 1].end,
    ...more,
  };
}

/**
 * @param {Line} line
 * @param {number} count of characters that a container takes
 * @returns {Line}
 */
function shifted(line, count) {
  return { ...line, start: Math.min(line.start + count, line.end) };
}

class Parser {
  /** @param {string} source */
  constructor(source) {
    this.source = source;
  }

  /** @param {Line} line */
  text(line) {
    return this.source.slice(line.start, line.end);
  }

  /** @param {Line} line */
  isBlank(line) {
    return !this.text(line).trim();
  }

  /**
   * @param {Line[]} lines
   * @param {number} depth of containers
   * @returns {Node[]}
   */
  blocks(lines, depth) {
    /** @type {Node[]} */
    const found = [];
    for (let at = 0; at < lines.length;) {
      const [made, next] = this.isBlank(lines[at])
        ? this.#blank(lines, at)
        : this.#container(lines, at, depth) || this.#leaf(lines, at);
      found.push(made);
      at = next;
    }
    return found;
  }

  /**
   * @param {Line[]} lines
   * @param {number} at
   * @returns {[Node, number]}
   */
  #blank(lines, at) {
    let next = at;
    const out = new Emitter();
    while (next < lines.length && this.isBlank(lines[next])) {
      out.mark(lines[next].from, lines[next].next);
      next += 1;
    }
    return [block("blank", out.nodes), next];
  }

  /**
   * @param {Line[]} lines
   * @param {number} at
   * @param {number} depth
   * @returns {[Node, number] | null}
   */
  #container(lines, at, depth) {
    const text = this.text(lines[at]);
    if (depth >= MOST_NESTED || RULE.test(text)) return null;
    if (QUOTE.test(text)) return this.#quote(lines, at, depth);
    if (ITEM.test(text)) return this.#list(lines, at, depth);
    return null;
  }

  /**
   * @param {Line[]} lines
   * @param {number} at
   * @param {number} depth
   * @returns {[Node, number]}
   */
  #quote(lines, at, depth) {
    const inner = [];
    for (; at < lines.length; at += 1) {
      const found = QUOTE.exec(this.text(lines[at]));
      if (!found) break;
      inner.push(shifted(lines[at], found[0].length));
    }
    return [block("quote", this.blocks(inner, depth + 1)), at];
  }

  /**
   * @param {Line[]} lines
   * @param {number} at
   * @param {number} depth
   * @returns {[Node, number]}
   */
  #list(lines, at, depth) {
    const number = this.#number(lines[at]);
    const items = [];
    while (at < lines.length && this.#isItem(lines[at], number !== null)) {
      const [inner, next] = this.#item(lines, at);
      items.push(block("item", this.blocks(inner, depth + 1)));
      at = next;
    }
    return [block("list", items, number === null ? {} : { first: number }), at];
  }

  /**
   * @param {Line} line
   * @returns {number | null}
   */
  #number(line) {
    const found = ITEM.exec(this.text(line));
    return found && /\d/.test(found[2]) ? Number.parseInt(found[2], 10) : null;
  }

  /**
   * @param {Line} line
   * @param {boolean} ordered
   */
  #isItem(line, ordered) {
    const text = this.text(line);
    return ITEM.test(text) && !RULE.test(text) && (this.#number(line) !== null) === ordered;
  }

  /**
   * @param {Line[]} lines
   * @param {number} at where an item begins
   * @returns {[Line[], number]} its lines, and the index behind them
   */
  #item(lines, at) {
    const mark = /** @type {RegExpExecArray} */ (ITEM.exec(this.text(lines[at])))[0];
    const indent = mark.length;
    const inner = [shifted(lines[at], indent)];
    let next = at + 1;
    let blank = inner[0].start === inner[0].end;
    for (; next < lines.length; next += 1) {
      const line = lines[next];
      const text = this.text(line);
      const indented = text.length - text.trimStart().length;
      if (!text.trim()) blank = true;
      else if (indented >= Math.min(indent, 2 + mark.trim().length)) blank = false;
      else if (blank || ITEM.test(text) || this.#interrupts(text)) break;
      inner.push(shifted(line, Math.min(indented, indent)));
    }
    return [inner, next];
  }

  /** @param {string} text of a line: does it end a paragraph? */
  #interrupts(text) {
    const item = ITEM.exec(text);
    const begins =
      item && text.length > item[0].length && (!/\d/.test(item[2]) || /^1[.)]/.test(item[2]));
    return begins || [FENCE, HEADING, RULE, QUOTE].some((form) => form.test(text));
  }

  /**
   * @param {Line[]} lines
   * @param {number} at
   * @returns {[Node, number]}
   */
  #leaf(lines, at) {
    const text = this.text(lines[at]);
    if (FENCE.test(text)) return this.#code(lines, at);
    if (HEADING.test(text)) return [this.#heading(lines[at]), at + 1];
    if (RULE.test(text)) {
      return [block("rule", new Emitter().mark(lines[at].from, lines[at].next).nodes), at + 1];
    }
    if (this.#isTable(lines, at)) return this.#table(lines, at);
    return this.#paragraph(lines, at);
  }

  /**
   * @param {Line[]} lines
   * @param {number} at
   * @returns {[Node, number]}
   */
  #code(lines, at) {
    const [, indent, fence, language] = /** @type {RegExpExecArray} */ (
      FENCE.exec(this.text(lines[at]))
    );
    const closes = new RegExp(`^ {0,3}${fence[0]}{${fence.length},}[ \\t]*$`);
    const out = new Emitter().mark(lines[at].from, lines[at].next);
    for (at += 1; at < lines.length; at += 1) {
      const text = this.text(lines[at]);
      if (closes.test(text)) {
        out.mark(lines[at].from, lines[at].next);
        return [block("code", out.nodes, { language }), at + 1];
      }
      const strip = Math.min(indent.length, text.length - text.trimStart().length);
      const line = shifted(lines[at], strip);
      out.mark(line.from, line.start).text(line.start, line.next);
    }
    return [block("code", out.nodes, { language }), at];
  }

  /** @param {Line} line */
  #heading(line) {
    const [prefix, marks] = /** @type {RegExpExecArray} */ (HEADING.exec(this.text(line)));
    const content = shifted(line, prefix.length);
    const out = new Emitter();
    inline(this.source, [content], out);
    out.mark(line.end, line.next);
    return block("heading", out.nodes, { level: marks.length });
  }

  /**
   * @param {Line[]} lines
   * @param {number} at
   * @returns {[Node, number]}
   */
  #paragraph(lines, at) {
    let next = at + 1;
    while (
      next < lines.length &&
      !this.isBlank(lines[next]) &&
      !this.#interrupts(this.text(lines[next])) &&
      !this.#isTable(lines, next)
    ) {
      next += 1;
    }
    const out = new Emitter();
    inline(this.source, lines.slice(at, next), out);
    out.mark(lines[next - 1].end, lines[next - 1].next);
    return [block("paragraph", out.nodes), next];
  }

  /**
   * @param {Line[]} lines
   * @param {number} at
   */
  #isTable(lines, at) {
    if (at + 1 >= lines.length || !this.text(lines[at]).includes("|")) return false;
    const delimiters = this.text(lines[at + 1]);
    if (!DELIMITERS.test(delimiters)) return false;
    return this.#cells(lines[at]).length === this.#cells(lines[at + 1]).length;
  }

  /**
   * @param {Line[]} lines
   * @param {number} at
   * @returns {[Node, number]}
   */
  #table(lines, at) {
    const aligns = this.#cells(lines[at + 1]).map(([start, end]) => {
      const text = this.source.slice(start, end);
      const right = text.endsWith(":");
      return text.startsWith(":") ? (right ? "center" : "left") : right ? "right" : "left";
    });
    const head = this.#row(lines[at], aligns);
    const below = block(
      "delimiters",
      new Emitter().mark(lines[at + 1].from, lines[at + 1].next).nodes,
    );
    const rows = [head, below];
    for (at += 2; at < lines.length; at += 1) {
      const text = this.text(lines[at]);
      if (!text.trim() || !text.includes("|") || this.#interrupts(text)) break;
      rows.push(this.#row(lines[at], aligns));
    }
    return [block("table", rows), at];
  }

  /**
   * @param {Line} line
   * @param {string[]} aligns
   */
  #row(line, aligns) {
    /** @type {Node[]} */
    const children = [];
    let at = line.from;
    this.#cells(line).forEach(([start, end], index) => {
      children.push(...new Emitter().mark(at, start).nodes);
      const out = new Emitter();
      inline(this.source, [{ from: start, start, end, next: end }], out);
      const span = { type: "cell", start, end, children: out.nodes };
      children.push({ ...span, align: aligns[index] ?? "left" });
      at = end;
    });
    children.push(...new Emitter().mark(at, line.next).nodes);
    return block("row", children);
  }

  /**
   * @param {Line} line
   * @returns {[number, number][]} where the text of each cell is
   */
  #cells(line) {
    const text = this.text(line);
    const first = text.search(/\S/);
    const outer = text[first] === "|" ? first + 1 : first;
    const body = text.trimEnd();
    const last =
      body.endsWith("|") && !body.endsWith("\\|") && body.length > outer
        ? body.length - 1
        : body.length;
    /** @type {[number, number][]} */
    const found = [];
    for (let from = outer; from <= last;) {
      let to = from;
      while (to < last && (text[to] !== "|" || text[to - 1] === "\\")) to += 1;
      const cell = text.slice(from, to);
      const lead = cell.length - cell.trimStart().length;
      const start = line.start + from + (cell.trim() ? lead : cell.length);
      found.push([start, start + cell.trim().length]);
      from = to + 1;
    }
    return found;
  }
}
