// Elements without HTML: what is text stays text.

/**
 * Make an element.
 *
 * @param {string} name of the tag.
 * @param {Record<string, any>} [given] attributes; `class`; `on` holds listeners by event. What is
 *   false, null or undefined is left out; true is an empty attribute.
 * @param {...(Node | string | null | undefined | false)} children
 * @returns {any}
 */
export function el(name, given = {}, ...children) {
  return fill(document.createElement(name), given, children);
}

/**
 * The same for a drawing.
 *
 * @param {string} name
 * @param {Record<string, any>} [given]
 * @param {...(Node | string | null | undefined | false)} children
 * @returns {any}
 */
export function svg(name, given = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), given, children);
}

/**
 * @param {Element} made
 * @param {Record<string, any>} given
 * @param {(Node | string | null | undefined | false)[]} children
 */
function fill(made, { on = {}, ...given }, children) {
  for (const [name, value] of Object.entries(given)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) {
      made.setAttribute(name, String(value));
    }
  }
  for (const [event, listener] of Object.entries(on)) made.addEventListener(event, listener);
  made.append(...children.filter((child) => child || child === "").map((child) => child || ""));
  return made;
}

/**
 * An element that index.html has.
 *
 * @param {string} id
 * @returns {any}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no #${id}`);
  return found;
}

/**
 * A button with a drawing and a name that is shown on hover and read out.
 *
 * @param {string} icon one of icons.svg
 * @param {string} label
 * @param {(event: MouseEvent) => void} press
 * @param {string} [kind] a class
 * @returns {HTMLButtonElement}
 */
export function iconButton(icon, label, press, kind = "") {
  const given = { type: "button", class: `icon-button ${kind}`, "aria-label": label, title: label };
  return el("button", { ...given, on: { click: press } }, drawing(icon));
}

/**
 * @param {string} name of a symbol in icons.svg
 * @returns {SVGElement}
 */
export function drawing(name) {
  const use = svg("use", { href: `#icon-${name}` });
  return svg("svg", { class: "icon", "aria-hidden": "true", viewBox: "0 0 24 24" }, use);
}
