// How an answer is doing, from what its steps brought.

/** @typedef {import("./types.js").Message} Message */

/**
 * @param {Pick<Message, "steps" | "summary">} answer
 * @param {number[]} verify V(1), V(2), ...; may be empty
 * @returns {{perStep: number | null, speedup: number | null, kept: number | null}} tokens a step;
 *   times as quick as plain decoding; the share of the drafted tokens that stayed
 */
export function doing({ steps = [], summary }, verify) {
  const sum = (/** @type {(step: import("./types.js").Step) => number} */ of) =>
    steps.reduce((all, step) => all + of(step), 0);
  const tokens = sum((step) => step.tokens);
  const drafted = sum((step) => step.drafted);
  const cost = sum((step) => passCost(verify, step.drafted + 1));
  return {
    perStep: summary?.tokens_per_step ?? (steps.length ? tokens / steps.length : null),
    speedup: summary ? summary.speedup : verify.length && cost ? tokens / cost : null,
    kept: drafted ? sum((step) => step.accepted) / drafted : null,
  };
}

/**
 * @param {number[]} verify
 * @param {number} width rows of a pass
 */
function passCost(verify, width) {
  return verify[Math.min(width, verify.length) - 1] ?? 0;
}
