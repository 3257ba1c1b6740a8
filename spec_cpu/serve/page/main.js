// Puts the page together.

import { models, Gone, Refused } from "./api.js";
import { Chat } from "./chat.js";
import { Composer } from "./composer.js";
import { Connection } from "./connection.js";
import { byId, el } from "./dom.js";
import { KeyView } from "./key_view.js";
import { applyTheme, bindTint, Sides } from "./layout.js";
import { Panel } from "./panel.js";
import { model } from "./preferences.js";
import { SettingsView } from "./settings_view.js";
import { Sidebar } from "./sidebar.js";
import { Store } from "./store.js";
import { SystemView } from "./system_view.js";
import { ThreadView } from "./thread_view.js";
import { toast } from "./toast.js";
import { TokenTip } from "./token_tip.js";

/** @param {Store} store */
async function start(store) {
  const chat = new Chat(store);
  const thread = new ThreadView(chat);
  const composer = new Composer(chat, () => thread.editLast(), toast);
  const connection = new Connection(() => greet());
  const panel = new Panel(chat, () => connection.lost());
  const sides = new Sides(() => panel.look());
  const tip = new TokenTip(chat);
  const key = new KeyView(() => greet());
  new SystemView(chat);
  new SettingsView(applyTheme);
  bindTint(() => thread.refresh());

  /** Ask the server who it is. */
  async function greet() {
    try {
      showModels(await models());
      panel.look();
    } catch (error) {
      if (error instanceof Gone) connection.lost();
      else if (error instanceof Refused && error.status === 401) key.ask();
      else toast(/** @type {Error} */ (error).message);
    }
  }

  /** @param {string | null} id */
  async function open(id) {
    await chat.open(id);
    const known = chat.list.some((one) => one.id === chat.conversation.id);
    history.pushState(null, "", known ? `#${chat.conversation.id}` : "#");
    sides.closeOver();
    composer.field.focus();
  }

  new Sidebar(chat, open);
  chat.addEventListener("gone", () => connection.lost());
  chat.addEventListener("locked", () => key.ask());
  for (const event of ["open", "list"]) chat.addEventListener(event, () => showTitle(chat));
  addEventListener("popstate", () => chat.open(location.hash.slice(1) || null));
  chat.addEventListener("messages", () => {
    if (chat.messages.length) history.replaceState(null, "", `#${chat.conversation.id}`);
  });
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
    if (!tip.hide() && !sides.closeOver()) chat.stop();
  });
  await chat.refreshList();
  await chat.open(location.hash.slice(1) || null);
  composer.field.focus();
  await greet();
}

/** @param {string[]} names */
function showModels(names) {
  const select = byId("model");
  if (!names.includes(model.get())) model.set(names[0] ?? "");
  select.replaceChildren(...names.map((name) => el("option", { value: name }, name)));
  select.value = model.get();
  select.hidden = names.length < 2;
  byId("model-name").textContent = names.length < 2 ? (names[0] ?? "") : "";
  select.onchange = () => model.set(select.value);
}

/** @param {Chat} chat */
function showTitle({ conversation }) {
  const title = conversation.title || "New conversation";
  byId("title").textContent = title;
  document.title = conversation.title ? `${title} – spec-cpu` : "spec-cpu";
}

applyTheme();
Store.open().then(start, (error) => {
  byId("broken").hidden = false;
  const why = error?.message ?? error;
  byId("broken").textContent =
    `This browser lets the page keep nothing (${why}). ` +
    "Allow it to store data for this address, and load the page again.";
});
