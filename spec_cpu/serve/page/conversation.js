// What a conversation is made of: a tree of messages, of which one path is shown.

import { newId, TAB } from "./ids.js";

/** @typedef {import("./types.js").Conversation} Conversation */
/** @typedef {import("./types.js").Message} Message */
/** @typedef {import("./types.js").Attachment} Attachment */

const SILENCE = 5000; // milliseconds without a sign of life from the tab that writes an answer

/**
 * @param {string} system
 * @returns {Conversation}
 */
export function newConversation(system) {
  const now = Date.now();
  return { id: newId(), title: "", system, created: now, updated: now, leaf: null };
}

/**
 * @param {Conversation} conversation
 * @param {string | null} parent
 * @param {string} text
 * @param {Attachment[]} files
 * @returns {Message}
 */
export function question(conversation, parent, text, files) {
  return { ...blank(conversation, parent), role: "user", text, files };
}

/**
 * @param {Conversation} conversation
 * @param {string} parent
 * @returns {Message}
 */
export function emptyAnswer(conversation, parent) {
  const base = blank(conversation, parent);
  const counted = { tokens: [], steps: [], summary: null, finish: null, error: null };
  return { ...base, role: "assistant", text: "", reasoning: "", ...counted, writer: TAB };
}

/**
 * @param {Conversation} conversation
 * @param {string | null} parent
 */
function blank(conversation, parent) {
  const now = Date.now();
  return { id: newId(), conversation: conversation.id, parent, created: now, saved: now };
}

/**
 * The messages from the first to the last that is shown.
 *
 * @param {Message[]} messages
 * @param {string | null} leaf
 * @returns {Message[]}
 */
export function path(messages, leaf) {
  const byId = new Map(messages.map((message) => [message.id, message]));
  /** @type {Message[]} */
  const found = [];
  for (let at = byId.get(leaf ?? ""); at; at = byId.get(at.parent ?? "")) {
    if (found.includes(at)) break; // an imported file may hold anything
    found.unshift(at);
  }
  return found;
}

/**
 * The last message of the branch that begins with this one, along the newest.
 *
 * @param {Message[]} messages the oldest first
 * @param {string | null} from null: the whole conversation
 * @returns {string | null}
 */
export function newestLeaf(messages, from) {
  const seen = new Set();
  for (let at = from; !seen.has(at);) {
    seen.add(at);
    const next = messages.findLast((message) => message.parent === at);
    if (!next) return at;
    at = next.id;
  }
  return from;
}

/**
 * The message and those that stand in its place in other branches.
 *
 * @param {Message[]} messages
 * @param {Message} message
 * @returns {Message[]}
 */
export function versions(messages, message) {
  return messages.filter((other) => other.parent === message.parent && other.role === message.role);
}

/**
 * Was this answer left unfinished by whoever wrote it?
 *
 * @param {Message} message
 * @param {string | null} writing the answer that this tab writes
 * @returns {boolean}
 */
export function isAbandoned(message, writing) {
  if (message.role !== "assistant" || message.finish !== null || message.id === writing)
    return false;
  return message.writer === TAB || Date.now() - message.saved > SILENCE;
}

/**
 * @param {string} text of the first question
 * @returns {string}
 */
export function titleOf(text) {
  const line = text.trim().split("\n", 1)[0].replace(/\s+/g, " ");
  return line.length > 60 ? `${line.slice(0, 57).trimEnd()}…` : line || "A file";
}
