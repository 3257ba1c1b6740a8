// Where the server wants a key.

import { apiKey } from "./preferences.js";
import { byId } from "./dom.js";

export class KeyView {
  /** @param {() => void} given called when there is a new key */
  constructor(given) {
    this.dialog = byId("key");
    this.field = byId("key-field");
    byId("key-form").addEventListener("submit", (/** @type {Event} */ event) => {
      event.preventDefault();
      apiKey.set(this.field.value.trim());
      this.dialog.close();
      given();
    });
    byId("key-cancel").addEventListener("click", () => this.dialog.close());
  }

  ask() {
    if (this.dialog.open) return;
    byId("key-wrong").hidden = !apiKey.get();
    this.field.value = "";
    this.dialog.showModal();
  }
}
