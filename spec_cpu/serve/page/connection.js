// Is the server there? Said where it is not, and when it is back.

import { isHealthy } from "./api.js";
import { announce } from "./announce.js";
import { byId } from "./dom.js";

const FIRST = 500; // milliseconds until the first look; then twice as long each time
const LONGEST = 5000;

export class Connection {
  /** @param {() => void} back called when the server is there again */
  constructor(back) {
    this.back = back;
    this.gone = false;
    byId("look-again").addEventListener("click", () => this.#look(FIRST));
    addEventListener("online", () => this.gone && this.#look(FIRST));
    this.timer = 0;
  }

  /** The server could not be reached: look until it can. */
  lost() {
    if (this.gone) return;
    this.gone = true;
    byId("gone").hidden = false;
    announce("The server cannot be reached. Nothing is lost.");
    this.#later(FIRST);
  }

  /** @param {number} wait */
  #later(wait) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#look(wait), wait);
  }

  /** @param {number} wait */
  async #look(wait) {
    if (await isHealthy()) this.#found();
    else this.#later(Math.min(2 * wait, LONGEST));
  }

  #found() {
    if (!this.gone) return;
    this.gone = false;
    clearTimeout(this.timer);
    byId("gone").hidden = true;
    announce("The server is back.");
    this.back();
  }
}
