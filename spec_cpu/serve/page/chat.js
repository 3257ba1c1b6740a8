// What the page is about: the conversation that is open, and the answers that are under way.

import { Gone, Refused } from "./api.js";
import {
  emptyAnswer,
  newConversation,
  newestLeaf,
  path,
  question,
  titleOf,
} from "./conversation.js";
import { TAB } from "./ids.js";
import { model, sampling, systemPrompt } from "./preferences.js";
import { requestBody } from "./request.js";
import { Writing } from "./writing.js";

/** @typedef {import("./types.js").Conversation} Conversation */
/** @typedef {import("./types.js").Message} Message */
/** @typedef {import("./types.js").Attachment} Attachment */

/**
 * Tells listeners of: "list" (the conversations changed), "open" (another one is shown), "messages"
 * (what is shown changed), "asked" (an answer begins), "growth" (it grew), "ended" (it ended;
 * detail: its writing), "gone" (the server cannot be reached), "locked" (it wants a key).
 */
export class Chat extends EventTarget {
  /** @param {import("./store.js").Store} store */
  constructor(store) {
    super();
    this.store = store;
    /** @type {Conversation[]} */
    this.list = [];
    this.conversation = newConversation(systemPrompt.get());
    /** All messages of it, the oldest first. @type {Message[]} */
    this.messages = [];
    /** @type {string | null} */
    this.leaf = null;
    /** By conversation. @type {Map<string, Writing>} */
    this.writings = new Map();
    store.onChange((id) => this.#changedElsewhere(id));
  }

  /** The messages that are shown. */
  get path() {
    return path(this.messages, this.leaf);
  }

  /** The answer of the open conversation that is under way. */
  get writing() {
    return this.writings.get(this.conversation.id) ?? null;
  }

  /** @param {string} id of a message */
  isWriting(id) {
    return this.writing?.message.id === id;
  }

  /** @param {string} type @param {any} [detail] */
  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }

  async refreshList() {
    this.list = await this.store.conversations();
    this.conversation =
      this.list.find((one) => one.id === this.conversation.id) ?? this.conversation;
    this.#tell("list");
  }

  /** @param {string | null} id null, or one that is not there: a new conversation */
  async open(id) {
    const found = this.list.find((conversation) => conversation.id === id);
    this.conversation = found ?? newConversation(systemPrompt.get());
    await this.#load();
    this.leaf = this.messages.some((message) => message.id === this.conversation.leaf)
      ? newestLeaf(this.messages, this.conversation.leaf)
      : newestLeaf(this.messages, null);
    this.#tell("open");
  }

  async #load() {
    const { id } = this.conversation;
    const messages = await this.store.messages(id);
    const mine = this.writings.get(id)?.message;
    if (id === this.conversation.id) {
      this.messages = messages.map((message) => (message.id === mine?.id ? mine : message));
    }
  }

  /** @param {string} id of the conversation that another tab changed */
  async #changedElsewhere(id) {
    await this.refreshList();
    if (id !== this.conversation.id) return;
    if (!this.list.includes(this.conversation)) {
      if (this.messages.length && !this.writing) await this.open(null);
      return;
    }
    await this.#load();
    this.leaf = newestLeaf(this.messages, this.leaf);
    this.#tell("messages");
  }

  /**
   * Ask a question, behind the last message that is shown or, if one is edited, in its place.
   *
   * @param {string} text
   * @param {Attachment[]} files
   * @param {Message | null} [edited]
   */
  async send(text, files, edited = null) {
    const { conversation } = this;
    const asked = question(conversation, edited ? edited.parent : this.leaf, text, files);
    if (!conversation.title) conversation.title = titleOf(text || files[0]?.name || "");
    this.messages.push(asked);
    const before = path(this.messages, asked.id);
    await this.store.add(conversation, [asked]);
    await this.#answer(conversation, asked, before);
  }

  /**
   * Have a question answered, in a new branch if it has been.
   *
   * @param {Message} asked
   */
  async answer(asked) {
    await this.#answer(this.conversation, asked, path(this.messages, asked.id));
  }

  /**
   * @param {Conversation} conversation
   * @param {Message} asked
   * @param {Message[]} before what the server is given
   */
  async #answer(conversation, asked, before) {
    const made = emptyAnswer(conversation, asked.id);
    await this.store.add(conversation, [made]);
    if (conversation.id === this.conversation.id) this.messages.push(made);
    await this.#write(conversation, made, before);
  }

  /**
   * Go on with an answer that was cut.
   *
   * @param {Message} cut
   */
  async goOn(cut) {
    const { conversation } = this;
    const claimed = await this.store.claim(cut, TAB);
    if (!claimed) return;
    this.messages = this.messages.map((message) => (message.id === cut.id ? claimed : message));
    const before = path(
      this.messages,
      claimed.text || claimed.reasoning ? claimed.id : claimed.parent,
    );
    await this.#write(conversation, claimed, before);
  }

  /**
   * @param {Conversation} conversation
   * @param {Message} message an answer
   * @param {Message[]} before what the server is given
   */
  async #write(conversation, message, before) {
    if (conversation.id === this.conversation.id) this.leaf = message.id;
    const writing = new Writing(message, this.store, () => this.#tell("growth", writing));
    this.writings.set(conversation.id, writing);
    const changes = { updated: Date.now(), leaf: message.id };
    Object.assign(conversation, changes);
    await this.store.update(conversation.id, changes);
    await this.refreshList();
    this.#tell("messages");
    this.#tell("asked");
    await writing.run(requestBody(conversation, before, sampling.get(), model.get()));
    this.writings.delete(conversation.id);
    this.#tell("ended", writing);
    this.#tell("messages");
    if (writing.failure instanceof Gone) this.#tell("gone");
    if (writing.failure instanceof Refused && writing.failure.status === 401) this.#tell("locked");
  }

  stop() {
    this.writing?.stop();
  }

  /** @param {string} id a message of another branch, which is shown from now on */
  async show(id) {
    this.leaf = newestLeaf(this.messages, id);
    this.#tell("messages");
    await this.store.update(this.conversation.id, { leaf: this.leaf });
  }

  /**
   * @param {string} id
   * @param {Partial<Conversation>} changes
   */
  async change(id, changes) {
    if (id === this.conversation.id) Object.assign(this.conversation, changes);
    await this.store.update(id, changes);
    await this.refreshList();
  }

  /**
   * @param {string} id
   * @returns {Promise<() => Promise<void>>} what brings it back
   */
  async remove(id) {
    const conversation = this.list.find((one) => one.id === id);
    this.writings.get(id)?.stop();
    const messages = await this.store.messages(id);
    await this.store.remove(id);
    await this.refreshList();
    if (id === this.conversation.id) await this.open(null);
    return async () => {
      if (conversation) await this.store.add(conversation, messages);
      await this.refreshList();
      await this.open(id);
    };
  }
}
