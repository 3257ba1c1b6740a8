// Shapes of what is kept and what the server sends. Types only.

/**
 * A conversation. Its messages are a tree: whoever edits or asks again makes a branch, and nothing
 * that was said is overwritten, in whichever tab.
 *
 * @typedef {object} Conversation
 * @property {string} id
 * @property {string} title
 * @property {string} system the system prompt; empty: none
 * @property {number} created milliseconds since 1970, as all times here
 * @property {number} updated
 * @property {string | null} leaf the message that is shown last, where it was chosen
 */

/**
 * @typedef {object} Attachment a file that was given as reference
 * @property {string} name
 * @property {string} text
 */

/**
 * @typedef {object} Token
 * @property {number} id
 * @property {string} text
 * @property {"accepted" | "correction" | "bonus" | "plain"} origin
 * @property {string[]} sources who proposed it
 * @property {[string, number][]} alternatives what else was drafted there, and its chance
 */

/**
 * @typedef {object} Message
 * @property {string} id
 * @property {string} conversation
 * @property {string | null} parent the message before it
 * @property {"user" | "assistant"} role
 * @property {string} text
 * @property {number} created
 * @property {number} saved when it was written last
 * @property {Attachment[]} [files] of a question
 * @property {string} [reasoning] of an answer
 * @property {Token[]} [tokens] of an answer, with those of its reasoning
 * @property {Step[]} [steps] of an answer
 * @property {Summary | null} [summary] of an answer that is whole
 * @property {string | null} [finish] of an answer: stop, length, stopped, error; null: under way
 * @property {string | null} [error] what went wrong, to be read
 * @property {string} [writer] the tab that writes it
 */

/**
 * @typedef {object} Step what one chunk brought
 * @property {number} tokens
 * @property {number} drafted
 * @property {number} accepted
 */

/**
 * @typedef {object} Summary the server's own of an answer
 * @property {number} tokens
 * @property {number} seconds
 * @property {number | null} tokens_per_second
 * @property {number | null} speedup
 * @property {number | null} tokens_per_step
 * @property {number} drafted
 * @property {number} accepted
 * @property {number} seed
 * @property {string} finish
 * @property {Record<string, {drafted: number, accepted: number}>} by_source
 */

/**
 * @typedef {object} ServerState
 * @property {string} model
 * @property {number} slots
 * @property {number} active
 * @property {number} waiting
 * @property {number} context
 * @property {number[]} verify V(1), V(2), ...
 * @property {number} width
 * @property {{id: number, rows: number, drafted: number}[]} shares
 * @property {number} tokens
 * @property {number} drafted
 * @property {number} accepted
 * @property {number} cycles
 * @property {Record<string, {drafted: number, accepted: number}>} by_source
 */

export {};
