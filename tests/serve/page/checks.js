// What can be wrong with a page for who looks, listens or has a small screen.

// Names of what can be operated, and whether ids are unique and references lead somewhere.
export function names() {
  const wrong = [];
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) wrong.push(`twice: ${id}`);
  for (const name of ["aria-labelledby", "aria-describedby", "aria-controls", "for"]) {
    for (const one of document.querySelectorAll(`[${name}]`)) {
      for (const id of one.getAttribute(name).split(" ")) {
        if (!document.getElementById(id)) wrong.push(`${name}=${id} leads nowhere`);
      }
    }
  }
  const operable = "button, a, input, select, textarea, summary, [role], [tabindex='0']";
  for (const one of document.querySelectorAll(operable)) {
    const shown =
      !one.closest("[aria-hidden=true], [hidden]") && one.getAttribute("role") !== "status";
    if (shown && !isNamed(one)) wrong.push(`no name: ${one.outerHTML.slice(0, 80)}`);
  }
  for (const image of document.querySelectorAll("img")) {
    if (!image.hasAttribute("alt")) wrong.push(`no alt: ${image.outerHTML}`);
  }
  const [first] = document.querySelectorAll("main :is(h1, h2, h3, h4, h5, h6)");
  if (first?.tagName !== "H1") wrong.push(`the first heading is ${first?.tagName}`);
  for (const child of document.querySelectorAll(":is(ul, ol) > :not(li)")) {
    wrong.push(`in a list: ${child.tagName}`);
  }
  return wrong;
}

function isNamed(one) {
  const label = document.getElementById(one.getAttribute("aria-labelledby"));
  return one.getAttribute("aria-label") || one.labels?.length || one.textContent.trim() || label;
}

// Text whose contrast to what is behind it is below 4.5, or 3 where it is large; edges below 3.
export function contrast() {
  const wrong = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let looked = 0;
  while (texts.nextNode()) {
    const { data, parentElement: one } = texts.currentNode;
    const away = one.closest(".unseen, .skip, :disabled, option, script, style");
    const seen = one.checkVisibility({ opacityProperty: true, visibilityProperty: true });
    if (!data.trim() || away || !seen) continue;
    const style = getComputedStyle(one);
    const color = one instanceof SVGElement ? style.fill : style.color;
    const found = ratio(color, one);
    looked += 1;
    if (found < leastRatio(style))
      wrong.push(`${found.toFixed(2)} ${one.className} ${data.slice(0, 30)}`);
  }
  for (const field of document.querySelectorAll("input:not([type=checkbox]), select, textarea")) {
    if (!field.checkVisibility() || field.closest(".composer")) continue;
    const found = ratio(getComputedStyle(field).borderTopColor, field.parentElement);
    if (found < 3) wrong.push(`${found.toFixed(2)} edge of ${field.id}`);
  }
  return { wrong, looked };
}

function leastRatio({ fontSize, fontWeight }) {
  const size = parseFloat(fontSize);
  return size >= 24 || (size >= 18.66 && Number(fontWeight) >= 700) ? 3 : 4.5;
}

function ratio(color, one) {
  const behind = ground(one);
  const [high, low] = [luminance(over(rgba(color), behind)), luminance(behind)].sort(
    (a, b) => b - a,
  );
  return (high + 0.05) / (low + 0.05);
}

const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

function rgba(color) {
  canvas.clearRect(0, 0, 1, 1);
  canvas.fillStyle = color;
  canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
  return [r, g, b, a / 255];
}

function over(top, below) {
  return top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3]));
}

function ground(one) {
  if (!one) return [255, 255, 255];
  const color = rgba(getComputedStyle(one).backgroundColor);
  return color[3] === 1 ? color.slice(0, 3) : over(color, ground(one.parentElement));
}

function luminance(rgb) {
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const [r, g, b] = rgb.map((c) => linear(c / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// What reaches over the edges of the window.
export function tooWide() {
  return [...document.querySelectorAll("body *")]
    .filter((one) => {
      const { left, right, width } = one.getBoundingClientRect();
      if (!one.checkVisibility() || one.closest("pre, .table, .unseen, .skip") || !width)
        return false;
      return right > innerWidth + 0.5 || left < -0.5;
    })
    .map((one) => one.outerHTML.slice(0, 80));
}

// Is it seen where the focus is?
export function focusIsSeen() {
  const one = document.activeElement;
  const { outlineStyle, boxShadow } = getComputedStyle(
    one.matches(".composer textarea") ? one.form : one,
  );
  return one === document.body || outlineStyle !== "none" || boxShadow !== "none";
}

// How many comparisons and searches of forms the parser makes for a text.
export async function work(text) {
  const { parse } = await import("/markdown.js");
  const before = [String.prototype.startsWith, RegExp.prototype.exec, RegExp.prototype.test];
  const counts = [0, 0, 0];
  const counted = before.map(
    (method, i) =>
      function (...given) {
        counts[i] += 1;
        return method.apply(this, given);
      },
  );
  const put = ([startsWith, exec, test]) => {
    Object.assign(String.prototype, { startsWith });
    Object.assign(RegExp.prototype, { exec, test });
  };
  put(counted);
  try {
    parse(text);
  } finally {
    put(before);
  }
  return counts[0] + counts[1] + counts[2];
}
