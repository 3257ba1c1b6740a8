// The field for a message, its files, and the button that sends or stops.

import { announce } from "./announce.js";
import { byId, el, iconButton } from "./dom.js";
import { readText } from "./files.js";
import { enterSends } from "./preferences.js";

/** @typedef {import("./types.js").Attachment} Attachment */

const FINGERS = matchMedia("(pointer: coarse)"); // there Enter begins a new line

export class Composer {
  /**
   * @param {import("./chat.js").Chat} chat
   * @param {() => void} editLast
   * @param {(text: string) => void} complain
   */
  constructor(chat, editLast, complain) {
    this.chat = chat;
    this.complain = complain;
    this.form = byId("composer");
    this.field = byId("composer-text");
    this.button = byId("send");
    this.chips = byId("files");
    /** @type {Attachment[]} */
    this.files = [];
    this.form.addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      this.press();
    });
    this.field.addEventListener("input", () => this.#typed());
    this.field.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) =>
      this.#key(event, editLast),
    );
    this.#takeFiles();
    for (const event of ["messages", "open", "ended"])
      chat.addEventListener(event, () => this.refresh());
    chat.addEventListener("open", () => this.#restore());
  }

  /** Send, or stop the answer that is under way. */
  press() {
    if (this.chat.writing) this.chat.stop();
    else this.#send();
  }

  refresh() {
    const writing = this.chat.writing !== null;
    byId("help-ctrl").hidden = enterSends.get();
    this.button.classList.toggle("stop", writing);
    this.button.setAttribute("aria-label", writing ? "Stop" : "Send");
    this.button.title = writing ? "Stop (Esc)" : "Send (Ctrl-Enter)";
    this.button.querySelector("use").setAttribute("href", writing ? "#icon-stop" : "#icon-send");
    this.button.disabled = !writing && !this.field.value.trim() && !this.files.length;
  }

  async #send() {
    const text = this.field.value.trim();
    const { files } = this;
    if (!text && !files.length) return;
    this.#set("", []);
    try {
      await this.chat.send(text, files);
    } catch (error) {
      this.#set(text, files);
      this.complain(`The message could not be kept: ${/** @type {Error} */ (error).message}`);
    }
  }

  /**
   * @param {KeyboardEvent} event
   * @param {() => void} editLast
   */
  #key(event, editLast) {
    if (event.isComposing) return;
    if (event.key === "ArrowUp" && !this.field.value && !this.files.length) {
      event.preventDefault();
      editLast();
    }
    if (event.key !== "Enter" || event.shiftKey) return;
    const always = event.ctrlKey || event.metaKey;
    if (!always && (!enterSends.get() || FINGERS.matches)) return;
    event.preventDefault();
    if (!this.chat.writing) this.#send();
  }

  #typed() {
    this.field.style.height = "auto";
    this.field.style.height = `${this.field.scrollHeight}px`;
    this.#remember();
    this.refresh();
  }

  /**
   * @param {string} text
   * @param {Attachment[]} files
   */
  #set(text, files) {
    this.field.value = text;
    this.files = files;
    this.#showFiles();
    this.#typed();
  }

  get #place() {
    const known = this.chat.list.some((one) => one.id === this.chat.conversation.id);
    return `spec-cpu.typed.${known ? this.chat.conversation.id : "new"}`;
  }

  /** What is being typed outlives a reload of the tab. */
  #remember() {
    try {
      if (this.field.value) sessionStorage.setItem(this.#place, this.field.value);
      else sessionStorage.removeItem(this.#place);
    } catch {
      // It is in the field as long as the page is.
    }
  }

  #restore() {
    let text = "";
    try {
      text = sessionStorage.getItem(this.#place) ?? "";
    } catch {
      // Nothing was kept.
    }
    this.#set(text, []);
  }

  #takeFiles() {
    const input = byId("file-input");
    byId("attach").addEventListener("click", () => input.click());
    input.addEventListener("change", async () => {
      await this.#add([...input.files]);
      input.value = "";
    });
    this.field.addEventListener("paste", (/** @type {ClipboardEvent} */ event) => {
      const files = [...(event.clipboardData?.files ?? [])];
      if (!files.length) return;
      event.preventDefault();
      this.#add(files);
    });
    const { body } = document;
    body.addEventListener("dragover", (event) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      body.classList.add("dropping");
    });
    body.addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) body.classList.remove("dropping");
    });
    body.addEventListener("drop", (event) => {
      body.classList.remove("dropping");
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      this.#add([...event.dataTransfer.files]);
    });
  }

  /** @param {File[]} files */
  async #add(files) {
    for (const file of files) {
      try {
        this.files = [...this.files, await readText(file)];
        announce(`${file.name} was added.`);
      } catch (error) {
        this.complain(/** @type {Error} */ (error).message);
      }
    }
    this.#showFiles();
    this.refresh();
    this.field.focus();
  }

  #showFiles() {
    const chips = this.files.map((file) => {
      const remove = iconButton("close", `Remove ${file.name}`, () => {
        this.files = this.files.filter((other) => other !== file);
        this.#showFiles();
        this.refresh();
        this.field.focus();
      });
      return el("li", { class: "chip" }, el("span", {}, file.name), remove);
    });
    this.chips.replaceChildren(...chips);
    this.chips.hidden = !chips.length;
  }
}
