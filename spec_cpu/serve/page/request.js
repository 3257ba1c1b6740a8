// What is asked of the server for an answer.

/** @typedef {import("./types.js").Conversation} Conversation */
/** @typedef {import("./types.js").Message} Message */
/** @typedef {import("./types.js").Attachment} Attachment */

/**
 * @param {Conversation} conversation
 * @param {Message[]} messages up to the question, or to an answer that is to go on
 * @param {Record<string, number>} sampling
 * @param {string} model
 */
export function requestBody(conversation, messages, sampling, model) {
  const system = conversation.system.trim()
    ? [{ role: "system", content: conversation.system }]
    : [];
  const references = messages.flatMap((message) => message.files ?? []);
  return {
    model,
    messages: [...system, ...messages.map(turn)],
    ...sampling,
    ...(references.length
      ? { prediction: { type: "content", content: references.map(part) } }
      : {}),
    stream: true,
    stream_options: { include_usage: true },
    spec_cpu: { tokens: true },
  };
}

/** @param {Message} message */
function turn({ role, text, files, reasoning }) {
  const cutInThought = role === "assistant" && !text && reasoning;
  return {
    role,
    content: content(text, files),
    ...(cutInThought ? { reasoning_content: reasoning } : {}),
  };
}

/**
 * @param {string} text
 * @param {Attachment[]} files
 */
function content(text, files = []) {
  if (!files.length) return text;
  const given = files.map(({ name, text: inside }) => ({
    type: "text",
    text: `${name}:\n\n${inside}\n\n`,
  }));
  return [...given, ...(text ? [{ type: "text", text }] : [])];
}

/** @param {Attachment} file */
function part({ text }) {
  return { type: "text", text };
}
