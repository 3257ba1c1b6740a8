// A word on the lower edge of the page, which goes by itself.

import { byId, el, iconButton } from "./dom.js";

const SHOWN = 8000; // milliseconds; as long as the pointer or the focus is on it, too

/**
 * @param {string} text
 * @param {{label: string, press: () => void} | null} [offer] what can be done about it
 */
export function toast(text, offer = null) {
  const close = () => made.remove();
  const act = () => {
    close();
    offer?.press();
  };
  const button =
    offer && el("button", { type: "button", class: "small", on: { click: act } }, offer.label);
  const made = el(
    "div",
    { class: "toast" },
    el("span", {}, text),
    button,
    iconButton("close", "Close", close),
  );
  byId("toasts").replaceChildren(made);
  const end = () => {
    if (made.matches(":hover, :focus-within")) setTimeout(end, SHOWN);
    else close();
  };
  setTimeout(end, SHOWN);
}
