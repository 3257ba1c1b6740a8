// Conversations in the browser's IndexedDB. Every change reads and writes within one transaction,
// and every message is a record of its own, so that tabs do not overwrite what others wrote.

import { isAbandoned } from "./conversation.js";

/** @typedef {import("./types.js").Conversation} Conversation */
/** @typedef {import("./types.js").Message} Message */

const NAME = "spec-cpu";
const VERSION = 1;

/**
 * @template T
 * @param {IDBRequest<T>} request
 * @returns {Promise<T>}
 */
function done(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/**
 * @param {IDBTransaction} transaction
 * @returns {Promise<void>}
 */
function committed(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
}

/** @param {string} conversation */
function allOf(conversation) {
  return IDBKeyRange.bound([conversation], [conversation, []]);
}

export class Store {
  /** @param {IDBDatabase} database */
  constructor(database) {
    this.database = database;
    this.channel = new BroadcastChannel(NAME);
  }

  /** @returns {Promise<Store>} */
  static async open() {
    const request = indexedDB.open(NAME, VERSION);
    request.onupgradeneeded = () => {
      request.result.createObjectStore("conversations", { keyPath: "id" });
      request.result.createObjectStore("messages", { keyPath: ["conversation", "id"] });
    };
    return new Store(await done(request));
  }

  /**
   * Be told of changes that other tabs make.
   *
   * @param {(conversation: string) => void} listener
   */
  onChange(listener) {
    this.channel.onmessage = (event) => listener(event.data);
  }

  /** @returns {Promise<Conversation[]>} the latest first */
  async conversations() {
    const found = await done(this.#read("conversations").getAll());
    return found.sort((a, b) => b.updated - a.updated);
  }

  /**
   * @param {string} conversation
   * @returns {Promise<Message[]>} the oldest first
   */
  async messages(conversation) {
    const found = await done(this.#read("messages").getAll(allOf(conversation)));
    return found.sort((a, b) => a.created - b.created);
  }

  /**
   * Add what is new; what is there stays as it is.
   *
   * @param {Conversation} conversation
   * @param {Message[]} messages
   */
  async add(conversation, messages) {
    await this.#write(conversation.id, async (conversations, records) => {
      if (!(await done(conversations.get(conversation.id)))) conversations.add(conversation);
      for (const message of messages) {
        if (!(await done(records.get([conversation.id, message.id])))) records.add(message);
      }
    });
  }

  /**
   * Write an answer as it grows. Nothing is written where it was deleted meanwhile, or where
   * another tab took it up.
   *
   * @param {Message} answer
   */
  async save(answer) {
    await this.#write(answer.conversation, async (_, records) => {
      const there = await done(records.get([answer.conversation, answer.id]));
      if (there?.writer === answer.writer) records.put({ ...answer, saved: Date.now() });
    });
  }

  /**
   * Take up an answer that nobody writes.
   *
   * @param {Message} answer
   * @param {string} writer the tab that goes on with it
   * @returns {Promise<Message | null>} as it stands now; null: somebody does write it
   */
  async claim(answer, writer) {
    let claimed = null;
    await this.#write(answer.conversation, async (_, records) => {
      const there = await done(records.get([answer.conversation, answer.id]));
      if (!there || (there.finish === null && !isAbandoned(there, null))) return;
      claimed = { ...there, writer, finish: null, error: null, saved: Date.now() };
      records.put(claimed);
    });
    return claimed;
  }

  /**
   * @param {string} id
   * @param {Partial<Conversation>} changes
   */
  async update(id, changes) {
    await this.#write(id, async (conversations) => {
      const found = await done(conversations.get(id));
      if (found) conversations.put({ ...found, ...changes });
    });
  }

  /** @param {string} id of a conversation */
  async remove(id) {
    await this.#write(id, async (conversations, records) => {
      conversations.delete(id);
      records.delete(allOf(id));
    });
  }

  /** @param {"conversations" | "messages"} name */
  #read(name) {
    return this.database.transaction(name).objectStore(name);
  }

  /**
   * @param {string} id of the conversation that changes
   * @param {(conversations: IDBObjectStore, messages: IDBObjectStore) => Promise<void>} change
   */
  async #write(id, change) {
    const transaction = this.database.transaction(["conversations", "messages"], "readwrite");
    const end = committed(transaction);
    await change(transaction.objectStore("conversations"), transaction.objectStore("messages"));
    await end;
    this.channel.postMessage(id);
  }
}
