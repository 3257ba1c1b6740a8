// The system prompt of the open conversation.

import { byId } from "./dom.js";

export class SystemView {
  /** @param {import("./chat.js").Chat} chat */
  constructor(chat) {
    const field = byId("system");
    const show = () => {
      const { system } = chat.conversation;
      if (document.activeElement !== field) field.value = system;
      byId("system-short").textContent = system.trim().split("\n", 1)[0] || "none";
    };
    field.addEventListener("input", () =>
      chat.change(chat.conversation.id, { system: field.value }),
    );
    for (const event of ["open", "list"]) chat.addEventListener(event, show);
  }
}
