// One message on the page.

import { copyButton } from "./clipboard.js";
import { isAbandoned, versions } from "./conversation.js";
import { el, iconButton } from "./dom.js";
import { MarkdownView } from "./markdown_view.js";
import { tinted } from "./preferences.js";
import { Tints } from "./tints.js";

/** @typedef {import("./types.js").Message} Message */

/** Reasons for which an answer ended that are worth a word. */
const ENDS = /** @type {Record<string, string>} */ ({
  length: "Cut at the length that was allowed.",
  stopped: "Stopped.",
});

export class MessageView {
  /**
   * @param {import("./chat.js").Chat} chat
   * @param {Message} message
   */
  constructor(chat, message) {
    this.chat = chat;
    this.message = message;
    this.body = el("div", { class: "body" });
    this.foot = el("div", { class: "foot" });
    this.status = el("p", { class: "status" });
    const who = message.role === "user" ? "You" : "Answer";
    const heading = el("h2", { class: "unseen", id: `who-${message.id}` }, who);
    const given = { class: `message ${message.role}`, "aria-labelledby": heading.id };
    this.element = el(
      "article",
      { ...given, "data-id": message.id },
      heading,
      this.body,
      this.status,
      this.foot,
    );
    if (message.role === "assistant") this.#buildAnswer();
  }

  #buildAnswer() {
    const inner = el("div", { class: "markdown" });
    this.thinking = el("details", { class: "thinking" }, el("summary", {}, "Thinking"), inner);
    this.thoughts = new MarkdownView(inner);
    const text = el("div", { class: "markdown text" });
    this.answer = new MarkdownView(text);
    this.body.append(this.thinking, text);
  }

  /** @param {Message} message the same, as it is now */
  update(message) {
    this.message = message;
    this.element.classList.toggle("writing", this.chat.isWriting(message.id));
    if (message.role === "user") this.#showQuestion();
    else this.#showAnswer();
    this.#showStatus();
    this.#showFoot();
  }

  /** What grew, without the buttons. */
  grow() {
    this.#showAnswer();
    this.#showStatus();
  }

  #showQuestion() {
    if (this.editor) return;
    const files = (this.message.files ?? []).map(({ name, text }) => {
      const size = `${text.length.toLocaleString()} characters`;
      return el(
        "details",
        { class: "file" },
        el("summary", {}, name, " ", el("span", {}, size)),
        el("pre", { tabindex: "0" }, text),
      );
    });
    const text = this.message.text ? [el("p", { class: "typed" }, this.message.text)] : [];
    this.body.replaceChildren(...files, ...text);
  }

  #showAnswer() {
    const { text, reasoning = "", tokens = [] } = this.message;
    const tint = tinted.get() && tokens.length > 0;
    this.element.classList.toggle("tinted", tint);
    this.thinking.hidden = !reasoning;
    if (reasoning) this.thoughts?.show(reasoning, tint ? new Tints(reasoning, tokens) : null);
    this.answer?.show(text, tint ? new Tints(text, tokens, reasoning.length) : null);
    const first = tint && !this.element.querySelector('.token[tabindex="0"]');
    if (first) this.element.querySelector(".token")?.setAttribute("tabindex", "0");
  }

  #showStatus() {
    const { message, chat } = this;
    const writing = chat.isWriting(message.id) ? chat.writing : null;
    let said = ENDS[message.finish ?? ""] ?? "";
    if (message.error) said = message.error;
    else if (isAbandoned(message, writing ? message.id : null)) said = "This answer was cut off.";
    else if (message.finish === null && !writing) said = "Being written in another tab…";
    else if (writing?.place) said = `Waiting: ${writing.place} before you.`;
    else if (writing?.reading) said = progress(writing.reading);
    else if (writing && !message.text && !message.reasoning) said = "Thinking about it…";
    this.status.textContent = said;
    this.status.classList.toggle("error", Boolean(message.error));
  }

  #showFoot() {
    const { message, chat } = this;
    const busy = chat.writing !== null;
    const parts = [this.#versions()];
    if (message.text) parts.push(copyButton("Copy this text", () => this.message.text));
    if (message.role === "user" && !busy)
      parts.push(iconButton("edit", "Edit and ask again", () => this.edit()));
    if (message.role === "assistant" && !busy) parts.push(...this.#answerButtons());
    if (message.summary) parts.push(el("span", { class: "speed" }, speed(message)));
    this.foot.replaceChildren(...parts);
  }

  #answerButtons() {
    const { message, chat } = this;
    const asked = chat.messages.find((one) => one.id === message.parent);
    const buttons = asked ? [iconButton("again", "Answer again", () => chat.answer(asked))] : [];
    const cut =
      isAbandoned(message, null) ||
      ["length", "stopped", "gone", "error"].includes(message.finish ?? "");
    if (!cut) return buttons;
    const label = message.text || message.reasoning ? "Go on" : "Try again";
    const on = { click: () => chat.goOn(message) };
    return [...buttons, el("button", { type: "button", class: "small primary go-on", on }, label)];
  }

  /** Steps through the versions of this message. */
  #versions() {
    const { message, chat } = this;
    const all = versions(chat.messages, message);
    if (all.length < 2 || chat.writing) return "";
    const at = all.findIndex((one) => one.id === message.id);
    const step = (
      /** @type {string} */ icon,
      /** @type {string} */ label,
      /** @type {number} */ to,
    ) => {
      const button = iconButton(icon, label, () => chat.show(all[to].id));
      button.disabled = !all[to];
      return button;
    };
    const where = el("span", {}, `${at + 1} of ${all.length}`);
    const group = { class: "versions", role: "group", "aria-label": "Versions" };
    return el(
      "span",
      group,
      step("back", "Version before", at - 1),
      where,
      step("forward", "Next version", at + 1),
    );
  }

  /** Put the question into a field. */
  edit() {
    if (this.editor) return;
    const { message, chat } = this;
    const field = el("textarea", { "aria-label": "Your question", rows: "3" });
    field.value = message.text;
    const close = () => {
      this.editor = null;
      this.update(this.message);
      this.element.querySelector("button")?.focus();
    };
    const send = () => {
      if (!field.value.trim()) return;
      this.editor = null;
      chat.send(field.value, message.files ?? [], message);
    };
    const press = (/** @type {KeyboardEvent} */ event) => {
      if (event.key === "Escape") close();
      else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
      else return;
      event.preventDefault();
      event.stopPropagation();
    };
    field.addEventListener("keydown", press);
    const ask = el(
      "button",
      { type: "button", class: "small primary", on: { click: send } },
      "Ask",
    );
    const cancel = el("button", { type: "button", class: "small", on: { click: close } }, "Cancel");
    this.editor = el(
      "div",
      { class: "editor" },
      field,
      el("div", { class: "buttons" }, ask, cancel),
    );
    this.body.replaceChildren(this.editor);
    field.focus();
  }
}

/** @param {{done: number, total: number}} reading */
function progress({ done, total }) {
  return `Reading: ${done.toLocaleString()} of ${total.toLocaleString()} tokens.`;
}

/** @param {Message} message */
function speed({ summary }) {
  if (!summary) return "";
  const { tokens, tokens_per_second: rate, tokens_per_step: step, speedup } = summary;
  const parts = [`${tokens} token${tokens === 1 ? "" : "s"}`];
  if (rate) parts.push(`${rate.toFixed(rate < 10 ? 1 : 0)} a second`);
  if (step) parts.push(`${step.toFixed(1)} a step`);
  if (speedup) parts.push(`${speedup.toFixed(1)}× plain`);
  return parts.join(" · ");
}
