// Names for records and tabs.

const LEFT = "spec-cpu.tab";

/** A name that nobody else gives. (crypto.randomUUID is missing where a page comes without TLS.) */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** This tab, also when it is reloaded. */
export const TAB = takeBack() ?? newId();

/** A tab that is duplicated takes what the session holds along, so that the name is left there only
 * while the page is away. @returns {string | null} */
function takeBack() {
  try {
    const name = sessionStorage.getItem(LEFT);
    sessionStorage.removeItem(LEFT);
    return name;
  } catch {
    return null;
  }
}

addEventListener("pagehide", () => {
  try {
    sessionStorage.setItem(LEFT, TAB);
  } catch {
    // It has another name when it comes back.
  }
});
