// The list of conversations.

import { byId, el, iconButton } from "./dom.js";
import { download, exported, imported } from "./exchange.js";
import { toast } from "./toast.js";

/** @typedef {import("./types.js").Conversation} Conversation */

export class Sidebar {
  /**
   * @param {import("./chat.js").Chat} chat
   * @param {(id: string | null) => void} open
   */
  constructor(chat, open) {
    this.chat = chat;
    this.open = open;
    this.list = byId("conversations");
    /** The one whose title is being changed. @type {string | null} */
    this.renaming = null;
    byId("new").addEventListener("click", () => open(null));
    byId("export").addEventListener("click", () => this.#export(chat.list));
    byId("import").addEventListener("click", () => byId("import-input").click());
    byId("import-input").addEventListener("change", (/** @type {any} */ event) =>
      this.#import(event.target),
    );
    for (const event of ["list", "open", "messages"])
      chat.addEventListener(event, () => this.refresh());
  }

  refresh() {
    if (this.renaming) return;
    const focused = document.activeElement?.closest("[data-conversation]");
    const held = focused && {
      id: focused.getAttribute("data-conversation"),
      at: document.activeElement?.className,
    };
    this.list.replaceChildren(...this.chat.list.map((one) => this.#row(one)));
    byId("no-conversations").hidden = this.chat.list.length > 0;
    byId("export").disabled = !this.chat.list.length;
    if (held)
      this.list.querySelector(`[data-conversation="${CSS.escape(held.id ?? "")}"] .open`)?.focus();
  }

  /** @param {Conversation} one */
  #row(one) {
    const current = one.id === this.chat.conversation.id;
    const title = one.title || "Untitled";
    const given = { type: "button", class: "open", "aria-current": current && "page", title };
    const open = el("button", { ...given, on: { click: () => this.open(one.id) } }, title);
    const busy =
      this.chat.writings.has(one.id) &&
      el("span", { class: "busy", role: "img", "aria-label": "answering" });
    const rename = iconButton("edit", `Rename ${title}`, () => this.#rename(row, one), "quiet");
    const save = iconButton("save", `Export ${title}`, () => this.#export([one]), "quiet");
    const remove = iconButton("delete", `Delete ${title}`, () => this.#remove(one), "quiet");
    const row = el(
      "li",
      { "data-conversation": one.id, class: current && "current" },
      open,
      busy,
      rename,
      save,
      remove,
    );
    return row;
  }

  /**
   * @param {HTMLElement} row
   * @param {Conversation} one
   */
  #rename(row, one) {
    this.renaming = one.id;
    const field = el("input", { "aria-label": "Title", maxlength: "200" });
    field.value = one.title;
    const end = async (/** @type {boolean} */ keep) => {
      if (!this.renaming) return;
      this.renaming = null;
      const title = field.value.trim();
      if (keep && title && title !== one.title) await this.chat.change(one.id, { title });
      this.refresh();
      this.list.querySelector(`[data-conversation="${one.id}"] .open`)?.focus();
    };
    field.addEventListener("blur", () => end(true));
    field.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Enter" && event.key !== "Escape") return;
      event.stopPropagation();
      end(event.key === "Enter");
    });
    row.replaceChildren(field);
    field.select();
  }

  /** @param {Conversation} one */
  async #remove(one) {
    const restore = await this.chat.remove(one.id);
    toast(`“${one.title || "Untitled"}” was deleted.`, { label: "Undo", press: restore });
  }

  /** @param {Conversation[]} conversations */
  async #export(conversations) {
    const day = new Date().toISOString().slice(0, 10);
    download(`conversations-${day}.json`, await exported(this.chat.store, conversations));
  }

  /** @param {HTMLInputElement} input */
  async #import(input) {
    const [file] = input.files ?? [];
    try {
      const held = await imported(this.chat.store, await file.text());
      await this.chat.refreshList();
      if (held.length) this.open(held[0].id);
      toast(
        held.length === 1 ? "1 conversation was read." : `${held.length} conversations were read.`,
      );
    } catch (error) {
      toast(`${file.name}: ${/** @type {Error} */ (error).message}`);
    }
    input.value = "";
  }
}
