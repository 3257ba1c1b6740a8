// The inside of a paragraph: emphasis, code, links.

/** @typedef {import("./markdown.js").Node} Node */
/** @typedef {import("./markdown.js").Line} Line */

/**
 * What has a form of its own: [start, open) and [close, end) are marks.
 *
 * @typedef {{type: string, start: number, open: number, close: number, end: number, href?: string}} Span
 */

const MOST_NESTED = 8;
const LONGEST = 2048; // characters of an address
const ADDRESS = /^https?:\/\/[^\s<>"`]+/;
const ESCAPED = /[!-/:-@[-`{-~]/;
const SAFE = /^(?:https?:\/\/|mailto:)/i;

/** Collects leaves, of which none is empty, and nodes. */
export class Emitter {
  constructor() {
    /** @type {Node[]} */
    this.nodes = [];
  }

  /**
   * @param {number} start
   * @param {number} end
   */
  text(start, end) {
    return this.#leaf("text", start, end);
  }

  /**
   * @param {number} start
   * @param {number} end
   */
  mark(start, end) {
    return this.#leaf("mark", start, end);
  }

  /**
   * @param {string} type
   * @param {number} start
   * @param {number} end
   */
  #leaf(type, start, end) {
    const last = this.nodes.at(-1);
    if (start >= end) return this;
    if (last && last.type === type && last.end === start) last.end = end;
    else this.nodes.push({ type, start, end, children: [] });
    return this;
  }
}

/**
 * Parse the text of some lines.
 *
 * @param {string} source
 * @param {Line[]} lines the line ends between them are text
 * @param {Emitter} out
 */
export function inline(source, lines, out) {
  const pieces = lines.map((line, i) =>
    source.slice(line.start, i + 1 < lines.length ? line.next : line.end),
  );
  new Inline(pieces.join(""), lines, pieces).run(out);
}

class Inline {
  /**
   * @param {string} text of the lines, without what containers took
   * @param {Line[]} lines
   * @param {string[]} pieces of the text, one a line
   */
  constructor(text, lines, pieces) {
    this.text = text;
    let at = 0;
    this.segments = pieces.map((piece, i) => {
      const segment = { at, until: at + piece.length, from: lines[i].from, start: lines[i].start };
      at = segment.until;
      return segment;
    });
    /** The line in which what is emitted next begins. */
    this.line = 0;
    /** Where looking for an end was in vain before. @type {Map<string, number>} */
    this.vain = new Map();
  }

  /** @param {Emitter} out */
  run(out) {
    out.mark(this.segments[0].from, this.segments[0].start);
    this.#range(0, this.text.length, out, 0);
  }

  /**
   * Emit [a, b) of the text, which follows what was emitted before, as leaves. Between lines
   * stands what containers took.
   *
   * @param {"text" | "mark"} type
   * @param {number} a
   * @param {number} b
   * @param {Emitter} out
   */
  #emit(type, a, b, out) {
    while (a < b) {
      const { at, until, from, start } = this.segments[this.line];
      if (a === until) {
        this.line += 1;
        continue;
      }
      if (a === at && this.line > 0) out.mark(from, start);
      const to = Math.min(b, until);
      out[type](start + a - at, start + to - at);
      a = to;
    }
  }

  /**
   * @param {number} from
   * @param {number} to
   * @param {Emitter} out
   * @param {number} depth
   */
  #range(from, to, out, depth) {
    let plain = from;
    for (let at = from; at < to;) {
      const found = this.#special(at, to, depth);
      if (!found) {
        at += 1;
        continue;
      }
      this.#emit("text", plain, at, out);
      this.#write(found, out, depth);
      at = plain = found.end;
    }
    this.#emit("text", plain, to, out);
  }

  /**
   * @param {Span} found
   * @param {Emitter} out
   * @param {number} depth
   */
  #write({ type, start, open, close, end, href }, out, depth) {
    const inner = new Emitter();
    this.#emit("mark", start, open, inner);
    if (["strong", "emphasis", "deleted"].includes(type) || (type === "link" && open > start)) {
      this.#range(open, close, inner, depth + 1);
    } else this.#emit("text", open, close, inner);
    this.#emit("mark", close, end, inner);
    if (type === "escape") out.nodes.push(...inner.nodes);
    else {
      const [first, last] = [inner.nodes[0].start, inner.nodes[inner.nodes.length - 1].end];
      out.nodes.push({ type, start: first, end: last, children: inner.nodes, href });
    }
  }

  /**
   * What begins at a place.
   *
   * @param {number} at
   * @param {number} to
   * @param {number} depth
   */
  #special(at, to, depth) {
    switch (this.text[at]) {
      case "\\":
        return at + 1 < to && ESCAPED.test(this.text[at + 1])
          ? { type: "escape", start: at, open: at + 1, close: at + 2, end: at + 2 }
          : null;
      case "`":
        return this.#code(at, to);
      case "*":
      case "_":
      case "~":
        return depth < MOST_NESTED ? this.#emphasis(at, to) : null;
      case "!":
      case "[":
        return depth < MOST_NESTED ? this.#link(at, to) : null;
      case "h":
        return this.#address(at, to);
      default:
        return null;
    }
  }

  /**
   * @param {number} at
   * @param {number} to
   */
  #code(at, to) {
    const ticks = /^`+/.exec(this.text.slice(at, Math.min(to, at + 32)))?.[0] ?? "`";
    if (this.text[at - 1] === "`") return null;
    const open = at + ticks.length;
    const close = this.#find(`code${ticks}`, open, to, (i) => {
      const here = this.text.startsWith(ticks, i);
      return here && this.text[i - 1] !== "`" && this.text[i + ticks.length] !== "`";
    });
    return close < 0 ? null : { type: "span", start: at, open, close, end: close + ticks.length };
  }

  /**
   * @param {number} at
   * @param {number} to
   */
  #emphasis(at, to) {
    const sign = this.text[at];
    const double = this.text[at + 1] === sign;
    if (sign === "~" && !double) return null;
    const mark = double ? sign + sign : sign;
    const open = at + mark.length;
    if (open >= to || /\s/.test(this.text[open]) || (sign === "_" && isWord(this.text[at - 1])))
      return null;
    const close = this.#find(mark, open + 1, to, (i) => this.#closes(mark, i, to));
    if (close < 0) return null;
    const type = sign === "~" ? "deleted" : double ? "strong" : "emphasis";
    return { type, start: at, open, close, end: close + mark.length };
  }

  /**
   * @param {string} mark
   * @param {number} at
   * @param {number} to
   */
  #closes(mark, at, to) {
    if (!this.text.startsWith(mark, at) || at + mark.length > to) return false;
    if (/\s/.test(this.text[at - 1]) || this.text[at - 1] === "\\") return false;
    const [before, after] = [this.text[at - 1], this.text[at + mark.length]];
    if (mark.length === 1 && (before === mark || after === mark)) return false;
    return mark[0] !== "_" || !isWord(after);
  }

  /**
   * @param {number} at
   * @param {number} to
   */
  #link(at, to) {
    const open = this.text[at] === "!" ? at + 2 : at + 1;
    if (this.text[open - 1] !== "[") return null;
    const close = this.#find("]", open, to, (i) => this.text.startsWith("](", i));
    if (close < 0) return null;
    const end = this.#find(")", close + 2, to, (i) => this.text.startsWith(")", i)) + 1;
    if (end < 1) return null;
    const [href] = this.text
      .slice(close + 2, end - 1)
      .trim()
      .split(/\s/, 1);
    if (!SAFE.test(href) || close === open) return null;
    return { type: "link", start: at, open, close, end, href };
  }

  /**
   * @param {number} at
   * @param {number} to
   */
  #address(at, to) {
    if (!this.text.startsWith("http", at) || isWord(this.text[at - 1])) return null;
    const href = ADDRESS.exec(this.text.slice(at, Math.min(to, at + LONGEST)))?.[0].replace(
      /[.,;:!?*_)\]}'"]+$/,
      "",
    );
    if (!href || href.endsWith("//")) return null;
    return {
      type: "link",
      start: at,
      open: at,
      close: at + href.length,
      end: at + href.length,
      href,
    };
  }

  /**
   * The first place from which `test` holds. A search that was in vain is not made again: what
   * takes long for a text of brackets alone does not.
   *
   * @param {string} what
   * @param {number} from
   * @param {number} to
   * @param {(at: number) => boolean} test
   */
  #find(what, from, to, test) {
    const key = `${what} ${to}`;
    if (from >= (this.vain.get(key) ?? Infinity)) return -1;
    for (let i = from; i < to; i += 1) if (test(i)) return i;
    this.vain.set(key, from);
    return -1;
  }
}

/** @param {string | undefined} character */
function isWord(character) {
  return character !== undefined && /[\p{L}\p{N}_]/u.test(character);
}
