// Conversations as JSON: out of the browser and into it.

import { newConversation, titleOf } from "./conversation.js";
import { newId } from "./ids.js";

/** @typedef {import("./types.js").Conversation} Conversation */
/** @typedef {import("./types.js").Message} Message */
/** @typedef {{conversation: Conversation, messages: Message[]}} Exported */

const FORMAT = "spec-cpu page";
const VERSION = 1;

/**
 * @param {import("./store.js").Store} store
 * @param {Conversation[]} conversations
 * @returns {Promise<string>}
 */
export async function exported(store, conversations) {
  const all = conversations.map(async (one) => ({
    conversation: one,
    messages: await store.messages(one.id),
  }));
  const held = { format: FORMAT, version: VERSION, conversations: await Promise.all(all) };
  return `${JSON.stringify(held, null, 1)}\n`;
}

/**
 * Add what a file holds. What is there already stays as it is: a file may be read twice.
 *
 * @param {import("./store.js").Store} store
 * @param {string} text an export of this page, or a file that `/save` of the chat wrote
 * @returns {Promise<Conversation[]>} what it held
 */
export async function imported(store, text) {
  const found = read(text);
  for (const { conversation, messages } of found) await store.add(conversation, messages);
  return found.map(({ conversation }) => conversation);
}

/**
 * @param {string} text
 * @returns {Exported[]}
 */
function read(text) {
  let held;
  try {
    held = JSON.parse(text);
  } catch {
    throw new Error("This file is not JSON.");
  }
  if (held?.format === FORMAT && held.version === VERSION && Array.isArray(held.conversations)) {
    return held.conversations.map(checked);
  }
  if (Array.isArray(held?.messages)) return [fromChat(held.messages)];
  throw new Error("This file holds no conversations of this page.");
}

/** @param {any} entry */
function checked(entry) {
  const { conversation, messages } = entry ?? {};
  if (!isText(conversation?.id) || !Array.isArray(messages)) throw damaged();
  const base = { ...newConversation(""), ...conversation };
  if (![base.title, base.system].every(isText)) throw damaged();
  return {
    conversation: base,
    messages: messages.map((message) => checkedMessage(message, base.id)),
  };
}

/**
 * @param {any} message
 * @param {string} conversation
 * @returns {Message}
 */
function checkedMessage(message, conversation) {
  const {
    id,
    role,
    text,
    parent = null,
    created,
    tokens = [],
    steps = [],
    files = [],
  } = message ?? {};
  const sound =
    isText(id) &&
    isText(text) &&
    ["user", "assistant"].includes(role) &&
    (parent === null || isText(parent)) &&
    Number.isFinite(created) &&
    [tokens, steps, files].every(Array.isArray) &&
    files.every((/** @type {any} */ file) => isText(file?.name) && isText(file?.text)) &&
    tokens.every(isToken);
  if (!sound) throw damaged();
  const finish = role === "assistant" ? { finish: message.finish ?? "stopped" } : {};
  return { ...message, parent, conversation, ...finish };
}

/** @param {any} token */
function isToken(token) {
  const named = isText(token?.text) && isText(token.origin);
  return named && Array.isArray(token.sources) && Array.isArray(token.alternatives);
}

/** @param {any} value */
function isText(value) {
  return typeof value === "string";
}

function damaged() {
  return new Error("This file is damaged: nothing was read from it.");
}

/** @param {any[]} turns role and content */
function fromChat(turns) {
  const sound = turns.every((turn) => isText(turn?.role) && isText(turn.content));
  if (!sound) throw damaged();
  const system = turns.find((turn) => turn.role === "system")?.content ?? "";
  const conversation = newConversation(system);
  /** @type {Message[]} */
  const messages = [];
  for (const { role, content } of turns.filter((turn) => turn.role !== "system")) {
    const created = conversation.created + messages.length;
    const before = messages.at(-1)?.id ?? null;
    const kind =
      role === "user" ? { role } : { role: /** @type {const} */ ("assistant"), finish: "stop" };
    const base = { id: newId(), conversation: conversation.id, parent: before, text: content };
    messages.push({ ...base, created, saved: created, ...kind });
  }
  conversation.title = titleOf(messages[0]?.text ?? "");
  return { conversation, messages };
}

/**
 * Offer a file to be saved.
 *
 * @param {string} name
 * @param {string} text
 */
export function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
