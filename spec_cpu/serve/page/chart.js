// Drawings of the panel.

import { svg } from "./dom.js";

const WIDTH = 260;
const HEIGHT = 132;
const LEFT = 26;
const BOTTOM = 20;
const TOP = 8;
const RIGHT = 8;

/**
 * What a pass over n tokens costs, and how wide the latest was.
 *
 * @param {number[]} verify V(1), V(2), ...
 * @param {number} width of the latest pass; 0: there was none
 * @returns {SVGElement}
 */
export function costCurve(verify, width) {
  const most = verify.length;
  const highest = Math.max(2, Math.ceil(Math.max(...verify)));
  const x = (/** @type {number} */ n) =>
    LEFT + ((n - 1) / Math.max(1, most - 1)) * (WIDTH - LEFT - RIGHT);
  const y = (/** @type {number} */ v) => HEIGHT - BOTTOM - (v / highest) * (HEIGHT - BOTTOM - TOP);
  const curve = verify.map((v, i) => `${x(i + 1)},${y(v)}`).join(" ");
  const ceiling = Math.min(most, highest);
  const plain = `${x(1)},${y(1)} ${x(ceiling)},${y(ceiling)}`;
  const drawn = svg(
    "svg",
    {
      class: "chart",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      role: "img",
      "aria-label": inWords(verify, width),
    },
    ...ticks(highest).map((v) =>
      svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(v), y2: y(v) }),
    ),
    ...ticks(highest).map((v) => label(String(v), LEFT - 6, y(v) + 3, "end")),
    ...ticks(most)
      .filter((n) => n > 0)
      .map((n) => label(String(n), x(n), HEIGHT - 6, "middle")),
    svg("polyline", { class: "plain-line", points: plain }),
    svg("polyline", { class: "cost-line", points: curve }),
  );
  if (width > 0 && most > 0) {
    const [cx, cy] = [x(Math.min(width, most)), y(verify[Math.min(width, most) - 1])];
    drawn.append(svg("line", { class: "width-line", x1: cx, x2: cx, y1: cy, y2: y(0) }));
    drawn.append(svg("circle", { class: "width-dot", cx, cy, r: 4.5 }));
  }
  return drawn;
}

/** @param {string} text @param {number} x @param {number} y @param {string} anchor */
function label(text, x, y, anchor) {
  return svg("text", { x, y, "text-anchor": anchor }, text);
}

/**
 * @param {number} most
 * @returns {number[]} a few round numbers up to it
 */
function ticks(most) {
  const step =
    [1, 2, 4, 5, 8, 10, 16, 20, 32, 50].find((one) => most / one <= 4) ?? Math.ceil(most / 4);
  return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
}

/** @param {number[]} verify @param {number} width */
function inWords(verify, width) {
  const at = verify[Math.min(width, verify.length) - 1];
  if (!width || !at) return `What a pass over up to ${verify.length} tokens costs.`;
  return `The latest pass was over ${width} tokens and cost ${at.toFixed(2)} plain steps.`;
}
