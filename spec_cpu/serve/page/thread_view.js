// The messages of the open conversation.

import { announce, Reader } from "./announce.js";
import { isAbandoned } from "./conversation.js";
import { byId } from "./dom.js";
import { MessageView } from "./message_view.js";

const NEAR = 80; // pixels from the end within which the page follows a growing answer
const LOOKED_AT = 1000; // milliseconds between looks at an answer that another tab writes

export class ThreadView {
  /** @param {import("./chat.js").Chat} chat */
  constructor(chat) {
    this.chat = chat;
    this.scroller = byId("thread");
    this.element = byId("messages");
    /** By message. @type {Map<string, MessageView>} */
    this.views = new Map();
    this.follows = true;
    this.drawn = false;
    /** @type {Reader | null} */
    this.reader = null;
    this.scroller.addEventListener("scroll", () => this.#scrolled());
    new ResizeObserver(() => this.#follow()).observe(this.scroller);
    byId("to-end").addEventListener("click", () => {
      this.toEnd();
      byId("composer-text").focus();
    });
    chat.addEventListener("asked", () => this.toEnd());
    chat.addEventListener("open", () => this.#open());
    chat.addEventListener("messages", () => this.refresh());
    chat.addEventListener("growth", () => this.#grew());
    chat.addEventListener("ended", (event) =>
      this.#ended(/** @type {CustomEvent} */ (event).detail),
    );
    setInterval(() => this.#look(), LOOKED_AT);
  }

  /** Show the end, and stay there. */
  toEnd() {
    this.follows = true;
    this.#follow();
  }

  #open() {
    this.views.clear();
    this.element.replaceChildren();
    this.follows = true;
    this.refresh();
  }

  /** Show what is there, leaving views as they are where nothing changed. */
  refresh() {
    const { path } = this.chat;
    const held = this.#focused();
    const shown = path.map((message) => {
      const view = this.views.get(message.id) ?? new MessageView(this.chat, message);
      this.views.set(message.id, view);
      view.update(message);
      return view.element;
    });
    [...this.element.children]
      .filter((child) => !shown.includes(child))
      .forEach((child) => child.remove());
    shown.forEach((element, at) => {
      if (this.element.children[at] !== element)
        this.element.insertBefore(element, this.element.children[at] ?? null);
    });
    byId("welcome").hidden = path.length > 0;
    this.#follow();
    if (held && !this.element.contains(document.activeElement)) this.#focus(held);
  }

  /** Where the focus is among the messages. */
  #focused() {
    const { activeElement } = document;
    const at = [...this.element.children].findIndex((one) => one.contains(activeElement));
    return at < 0 || !activeElement ? null : { at, name: nameOf(activeElement) };
  }

  /**
   * To the button that took the place of the one that had it, or to the messages.
   *
   * @param {{at: number, name: string}} held
   */
  #focus({ at, name }) {
    const buttons = [...(this.element.children[at]?.querySelectorAll("button:enabled") ?? [])];
    const same = /** @type {HTMLElement} */ (
      buttons.find((one) => nameOf(one) === name) ?? this.scroller
    );
    same.focus({ preventScroll: true });
  }

  /** Draw at most once a frame. */
  #grew() {
    if (this.drawn) return;
    this.drawn = true;
    requestAnimationFrame(() => {
      this.drawn = false;
      const { writing } = this.chat;
      if (!writing) return;
      this.views.get(writing.message.id)?.grow();
      this.reader ??= new Reader();
      this.reader.follow(writing.message.text, false);
      this.#follow();
    });
  }

  /** @param {import("./writing.js").Writing} writing */
  #ended(writing) {
    const { message } = writing;
    if (message.conversation !== this.chat.conversation.id) {
      announce("An answer in another conversation is complete.");
      return;
    }
    (this.reader ?? new Reader()).follow(message.text, true);
    this.reader = null;
    announce(
      message.error ?? (message.finish === "stopped" ? "Stopped." : "The answer is complete."),
    );
  }

  /** Answers of other tabs may have been cut off since. */
  #look() {
    const waits = this.chat.path.some(
      (message) => message.finish === null && !this.chat.isWriting(message.id),
    );
    if (
      waits &&
      this.chat.path.some((message) => isAbandoned(message, this.chat.writing?.message.id ?? null))
    ) {
      const cut = this.element.querySelector(".go-on");
      if (!cut) this.refresh();
    }
  }

  #scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    this.follows = scrollHeight - scrollTop - clientHeight < NEAR;
    byId("to-end").hidden = this.follows;
  }

  #follow() {
    if (this.follows) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  /** Edit the last question. */
  editLast() {
    const last = this.chat.path.findLast((message) => message.role === "user");
    if (last && !this.chat.writing) this.views.get(last.id)?.edit();
  }
}

/** @param {Element} element */
function nameOf(element) {
  return element.getAttribute("aria-label") ?? element.textContent ?? "";
}
