// Names for records and tabs.

/** A name that nobody else gives. (crypto.randomUUID is missing where a page comes without TLS.) */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** This tab, until it is reloaded. */
export const TAB = newId();
