// The server: what it can be asked, and what can go wrong.

import { events } from "./sse.js";
import { apiKey } from "./preferences.js";

/** The server could not be reached, or broke off. */
export class Gone extends Error {}

/** The server said no. */
export class Refused extends Error {
  /**
   * @param {string} message
   * @param {number} status of HTTP
   * @param {number | null} retryAfter seconds
   */
  constructor(message, status, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/**
 * @param {string} path
 * @param {RequestInit} [init]
 * @returns {Promise<Response>}
 */
async function ask(path, init = {}) {
  const headers = new Headers(init.headers);
  const key = apiKey.get();
  if (key) headers.set("Authorization", `Bearer ${key}`);
  let response;
  try {
    response = await fetch(path, { ...init, headers, cache: "no-store" });
  } catch (error) {
    throw lost(error);
  }
  if (!response.ok) throw await refusal(response);
  return response;
}

/**
 * @param {unknown} error of fetch or of reading
 * @returns {Error} itself, if it was the person who stopped
 */
function lost(error) {
  if (error instanceof DOMException && error.name === "AbortError") return error;
  return new Gone("The server cannot be reached.");
}

/** @param {Response} response */
async function refusal(response) {
  const said = await response.json().catch(() => null);
  const message = said?.error?.message ?? `The server answered with status ${response.status}.`;
  const wait = Number(response.headers.get("Retry-After"));
  return new Refused(message, response.status, wait > 0 ? wait : null);
}

/** @returns {Promise<boolean>} whether the server takes requests */
export async function isHealthy() {
  try {
    return (await fetch("/health", { cache: "no-store" })).ok;
  } catch {
    return false;
  }
}

/** @returns {Promise<string[]>} names of models */
export async function models() {
  const found = await (await ask("/v1/models")).json();
  return found.data.map((/** @type {{id: string}} */ model) => model.id);
}

/** @returns {Promise<import("./types.js").ServerState>} */
export async function state() {
  return (await ask("/spec-cpu/state")).json();
}

/** @returns {Promise<any>} what the server answers with where nothing else is asked for */
export async function props() {
  return (await ask("/props")).json();
}

/**
 * Ask for an answer.
 *
 * @param {object} body of the request
 * @param {AbortSignal} signal stops it
 * @returns {AsyncGenerator<any>} `{place}` (requests before this one) and then every chunk
 */
export async function* answer(body, signal) {
  const response = await ask("/v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  yield { place: Number(response.headers.get("x-queue-place")) };
  if (!response.body) throw new Gone("The server sent nothing.");
  try {
    for await (const data of events(response.body)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Refused(chunk.error.message, response.status, null);
      yield chunk;
    }
  } catch (error) {
    throw error instanceof Refused ? error : lost(error);
  }
  throw new Gone("The server broke off in the middle of the answer.");
}
