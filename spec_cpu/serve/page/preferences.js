// What a person chose, kept in this browser.

/**
 * A value in localStorage; where that is shut, in memory.
 *
 * @template T
 * @param {string} name
 * @param {T} initial
 * @returns {{get: () => T, set: (value: T) => void}}
 */
function kept(name, initial) {
  const key = `spec-cpu.${name}`;
  /** @type {T} */
  let memory = initial;
  return {
    get() {
      try {
        const text = localStorage.getItem(key);
        return text === null ? memory : JSON.parse(text);
      } catch {
        return memory;
      }
    },
    set(value) {
      memory = value;
      try {
        localStorage.setItem(key, JSON.stringify(value));
      } catch {
        // The page goes on with what it has in memory.
      }
    },
  };
}

/** The key that the server asks for. */
export const apiKey = kept("key", "");

/** Sampling settings, by their names in a request. What is not here is left to the server. */
export const sampling = kept("sampling", /** @type {Record<string, number>} */ ({}));

/** The system prompt that new conversations begin with. */
export const systemPrompt = kept("system", "");

/** "auto", "light" or "dark". */
export const theme = kept("theme", "auto");

/** Are tokens tinted by where they came from? */
export const tinted = kept("tinted", false);

/** Is the panel open, where there is room for it? */
export const panelOpen = kept("panel", true);

/** Does Enter send a message? If not, it begins a new line, and Ctrl-Enter sends. */
export const enterSends = kept("enter-sends", true);

/** The model that was chosen, where the server has several. */
export const model = kept("model", "");
