// Copying.

import { drawing, iconButton } from "./dom.js";
import { announce } from "./announce.js";

const SHOWN = 1500; // milliseconds for which a button says that it was done

/**
 * @param {string} label
 * @param {() => string} text
 */
export function copyButton(label, text) {
  const button = iconButton("copy", label, async () => {
    const done = await copy(text());
    announce(done ? "Copied." : "This browser does not let the page copy.");
    button.replaceChildren(drawing(done ? "done" : "warning"));
    setTimeout(() => button.replaceChildren(drawing("copy")), SHOWN);
  });
  return button;
}

/**
 * @param {string} text
 * @returns {Promise<boolean>} whether it was copied
 */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text); // the clipboard is missing where a page comes without TLS
  }
}

/** @param {string} text */
function copyBySelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  const before = document.activeElement;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (before instanceof HTMLElement) before.focus();
  return done;
}
