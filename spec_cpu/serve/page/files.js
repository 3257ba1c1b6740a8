// Files that a person gives as reference.

const MOST_BYTES = 4 * 2 ** 20; // far more than a context has room for

/**
 * @param {File} file
 * @returns {Promise<import("./types.js").Attachment>}
 */
export async function readText(file) {
  if (file.size > MOST_BYTES) throw new Error(`${file.name} is too large: it may have 4 MB.`);
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw notText(file);
  }
  if (text.includes("\0")) throw notText(file);
  if (!text.trim()) throw new Error(`${file.name} is empty.`);
  return { name: file.name, text };
}

/** @param {File} file */
function notText(file) {
  return new Error(`${file.name} is not a text: the model reads text alone (UTF-8).`);
}
