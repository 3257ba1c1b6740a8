// The settings of answers and of the page.

import { props } from "./api.js";
import { byId, el } from "./dom.js";
import { apiKey, enterSends, sampling, systemPrompt, theme } from "./preferences.js";

/**
 * Sampling settings by their names in a request.
 *
 * @type {{name: string, label: string, help: string, min: number, max?: number, step: number}[]}
 */
const SETTINGS = [
  {
    name: "temperature",
    label: "Temperature",
    help: "0: always the likeliest word. Higher: more varied.",
    min: 0,
    max: 2,
    step: 0.05,
  },
  {
    name: "top_p",
    label: "Top-p",
    help: "Only the likeliest words that together have this probability. 1: all.",
    min: 0,
    max: 1,
    step: 0.01,
  },
  {
    name: "top_k",
    label: "Top-k",
    help: "Only this many of the likeliest words. 0: all.",
    min: 0,
    step: 1,
  },
  {
    name: "min_p",
    label: "Min-p",
    help: "Only words at least this likely, relative to the likeliest. 0: all.",
    min: 0,
    max: 1,
    step: 0.01,
  },
  {
    name: "max_tokens",
    label: "Longest answer",
    help: "In tokens. Empty: as long as there is room.",
    min: 1,
    step: 1,
  },
  {
    name: "seed",
    label: "Seed",
    help: "The same seed gives the same answer again. Empty: another each time.",
    min: 0,
    step: 1,
  },
  {
    name: "frequency_penalty",
    label: "Frequency penalty",
    help: "Against words, for each time that they occurred.",
    min: -2,
    max: 2,
    step: 0.1,
  },
  {
    name: "presence_penalty",
    label: "Presence penalty",
    help: "Against words that occurred at all.",
    min: -2,
    max: 2,
    step: 0.1,
  },
  {
    name: "repeat_penalty",
    label: "Repeat penalty",
    help: "Divides the odds of words that occurred lately. 1: off.",
    min: 0.5,
    max: 2,
    step: 0.05,
  },
];

export class SettingsView {
  /** @param {() => void} changed called when the look of the page changes */
  constructor(changed) {
    this.dialog = byId("settings");
    this.fields = SETTINGS.map((setting) => this.#field(setting));
    byId("sampling").append(...this.fields.map(({ row }) => row));
    byId("open-settings").addEventListener("click", () => this.open());
    byId("reset-sampling").addEventListener("click", () => {
      sampling.set({});
      this.#fill();
    });
    this.#bind("theme", theme, "value", changed);
    this.#bind("enter-sends", enterSends, "checked");
    this.#bind("default-system", systemPrompt, "value");
    this.#bind("settings-key", apiKey, "value");
  }

  async open() {
    this.#fill();
    this.dialog.showModal();
    try {
      this.#place(await props());
    } catch {
      // The fields go without what the server would take.
    }
  }

  /** @param {typeof SETTINGS[number]} setting */
  #field({ name, label, help, ...limits }) {
    const field = el("input", {
      type: "number",
      id: `set-${name}`,
      inputmode: "decimal",
      "aria-describedby": `help-${name}`,
      ...limits,
    });
    field.addEventListener("change", () => this.#keep(name, field));
    const words = el("label", { for: field.id }, label);
    const row = el(
      "div",
      { class: "setting" },
      words,
      field,
      el("p", { class: "help", id: `help-${name}` }, help),
    );
    return { name, field, row };
  }

  /**
   * @param {string} name
   * @param {HTMLInputElement} field
   */
  #keep(name, field) {
    if (!field.reportValidity()) return;
    const { [name]: _, ...others } = sampling.get();
    sampling.set(field.value === "" ? others : { ...others, [name]: field.valueAsNumber });
  }

  #fill() {
    const chosen = sampling.get();
    for (const { name, field } of this.fields) field.value = chosen[name] ?? "";
  }

  /** @param {any} found what the server takes where nothing is set */
  #place({ sampling: defaults = {}, max_tokens: most }) {
    for (const { name, field } of this.fields) {
      const value = name === "max_tokens" ? most : defaults[name];
      field.placeholder = value ?? (name === "seed" ? "any" : "");
    }
  }

  /**
   * @param {string} id of a field
   * @param {{get: () => any, set: (value: any) => void}} kept
   * @param {"value" | "checked"} property
   * @param {() => void} [changed]
   */
  #bind(id, kept, property, changed = () => {}) {
    const field = byId(id);
    field[property] = kept.get();
    field.addEventListener("change", () => {
      kept.set(field[property]);
      changed();
    });
    this.dialog.addEventListener("focusin", () => {
      if (document.activeElement !== field) field[property] = kept.get();
    });
  }
}
