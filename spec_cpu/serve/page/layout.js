// The page around the conversation: what is open, how it looks.

import { byId } from "./dom.js";
import { panelOpen, theme, tinted } from "./preferences.js";

const NARROW = matchMedia("(max-width: 60rem)"); // there the sides lie over the conversation

/** Apply the theme that was chosen. */
export function applyTheme() {
  const chosen = theme.get();
  if (chosen === "auto") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.dataset.theme = chosen;
}

/**
 * The two sides, of which at most one lies over the conversation where it is narrow.
 */
export class Sides {
  /** @param {() => void} panelShown */
  constructor(panelShown) {
    this.sidebar = byId("sidebar");
    this.panel = byId("panel");
    this.panelShown = panelShown;
    this.buttons = { sidebar: byId("toggle-sidebar"), panel: byId("toggle-panel") };
    this.buttons.sidebar.addEventListener("click", () => this.#toggle("sidebar"));
    this.buttons.panel.addEventListener("click", () => this.#toggle("panel"));
    byId("close-sidebar").addEventListener("click", () => this.closeOver());
    byId("close-panel").addEventListener("click", () => this.#set("panel", false));
    byId("shade").addEventListener("click", () => this.closeOver());
    NARROW.addEventListener("change", () => this.arrange());
    this.arrange();
  }

  /** As it fits the width. */
  arrange() {
    this.#apply("sidebar", !NARROW.matches);
    this.#apply("panel", !NARROW.matches && panelOpen.get());
  }

  /** @returns {boolean} whether something lay over the conversation, and was closed */
  closeOver() {
    const over = NARROW.matches && ["sidebar", "panel"].find((side) => !byId(side).hidden);
    if (!over) return false;
    this.#set(/** @type {"sidebar" | "panel"} */ (over), false);
    return true;
  }

  /** @param {"sidebar" | "panel"} side */
  #toggle(side) {
    const open = this[side].hidden;
    if (open) this.closeOver();
    this.#set(side, open);
    if (open && NARROW.matches) this[side].querySelector("button")?.focus();
  }

  /** @param {"sidebar" | "panel"} side @param {boolean} open */
  #set(side, open) {
    if (side === "panel" && !NARROW.matches) panelOpen.set(open);
    const inside = this[side].contains(document.activeElement);
    this.#apply(side, open);
    if (!open && inside) this.buttons[side].focus();
  }

  /** @param {"sidebar" | "panel"} side @param {boolean} open */
  #apply(side, open) {
    this[side].hidden = !open;
    this.buttons[side].setAttribute("aria-expanded", String(open));
    const over = NARROW.matches && [this.sidebar, this.panel].some((one) => !one.hidden);
    byId("shade").hidden = !over;
    byId("main").inert = over;
    if (side === "panel" && open) this.panelShown();
  }
}

/** @param {() => void} changed */
export function bindTint(changed) {
  const button = byId("toggle-tint");
  const apply = () => {
    button.setAttribute("aria-checked", String(tinted.get()));
    byId("legend").hidden = !tinted.get();
  };
  button.addEventListener("click", () => {
    tinted.set(!tinted.get());
    apply();
    changed();
  });
  apply();
}
