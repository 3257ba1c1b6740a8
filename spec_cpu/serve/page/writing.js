// One answer under way: from the server into its message, and into the store as it grows.

import { answer, Gone } from "./api.js";

/** @typedef {import("./types.js").Message} Message */
/** @typedef {import("./types.js").Summary} Summary */

const SAVED_EVERY = 500; // milliseconds

export class Writing {
  /**
   * @param {Message} message an answer; what comes is added to it
   * @param {import("./store.js").Store} store
   * @param {() => void} changed
   */
  constructor(message, store, changed) {
    this.message = message;
    this.store = store;
    this.changed = changed;
    this.abort = new AbortController();
    /** Requests before this one; 0: it was taken up. */
    this.place = 0;
    /** How much of the prompt was read. @type {{done: number, total: number} | null} */
    this.reading = null;
    /** Its name among the shares of a pass, where the server tells. @type {number | null} */
    this.share = null;
    /** The error that ended it. @type {Error | null} */
    this.failure = null;
  }

  stop() {
    this.abort.abort();
  }

  /**
   * @param {object} body of the request
   */
  async run(body) {
    const saving = setInterval(() => this.#save(), SAVED_EVERY);
    try {
      for await (const chunk of answer(body, this.abort.signal)) {
        this.#take(chunk);
        this.changed();
      }
      this.message.finish ??= "stop";
    } catch (error) {
      this.#fail(error);
    } finally {
      clearInterval(saving);
      this.place = 0;
      this.reading = null;
      await this.#save();
      this.changed();
    }
  }

  async #save() {
    await this.store.save(this.message).catch((error) => {
      const why = `This browser could not keep the answer (${error.message}).`;
      this.message.error = `${why} Copy it.`;
    });
  }

  /** @param {any} chunk */
  #take(chunk) {
    if (chunk.place !== undefined) {
      this.place = chunk.place;
      return;
    }
    if (chunk.spec_cpu) this.#count(chunk.spec_cpu);
    for (const { delta, finish_reason: finish } of chunk.choices) {
      const { message } = this;
      if (delta.reasoning_content)
        message.reasoning = (message.reasoning ?? "") + delta.reasoning_content;
      if (delta.content) message.text += delta.content;
      if (finish) message.finish = finish;
    }
  }

  /** @param {any} told by the server of the tokens of a chunk */
  #count({ tokens, drafted, accepted, reading, summary, id }) {
    const { message } = this;
    this.place = 0;
    this.reading = reading ?? null;
    this.share = id ?? this.share;
    message.tokens = message.tokens ?? [];
    message.tokens.push(...tokens);
    if (tokens.length || drafted) {
      message.steps = message.steps ?? [];
      message.steps.push({ tokens: tokens.length, drafted, accepted });
    }
    if (summary) message.summary = summary;
  }

  /** @param {any} error */
  #fail(error) {
    if (error instanceof DOMException && error.name === "AbortError") {
      this.message.finish = "stopped";
      return;
    }
    if (!(error instanceof Error)) throw error;
    this.failure = error;
    this.message.finish = error instanceof Gone ? "gone" : "error";
    this.message.error = error.message;
  }
}
