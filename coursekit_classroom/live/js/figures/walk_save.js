// A picture of the walk as an SVG that needs no stylesheet: for slides.
import { shape } from "./parts.js";

// What stylesheets say of a shape; all else stands in its attributes.
const STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray",
  "stroke-linecap", "rx", "font-family", "font-size", "font-weight",
  "text-anchor"];
const MARGIN = 40; // pixels, on the right
const SHAPES = "rect, path, line, circle, text";

/** The file of an SVG that is in the page, in the page's colors. */
export function standalone(svg, title) {
  const copy = svg.cloneNode(true);
  const shown = svg.querySelectorAll(SHAPES);
  copy.querySelectorAll(SHAPES).forEach((each, i) => {
    const style = getComputedStyle(shown[i]);
    for (const name of STYLES) {
      const value = style.getPropertyValue(name);
      if (name === "fill" || name === "stroke") paint(each, name, value);
      else if (value && value !== "auto") each.setAttribute(name, value);
    }
  });
  for (const each of [copy, ...copy.querySelectorAll("*")])
    each.removeAttribute("class");
  copy.removeAttribute("aria-hidden");
  // Where the page's face is not installed, words may be wider.
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  copy.setAttribute("viewBox", `0 0 ${width + MARGIN} ${height}`);
  copy.setAttribute("width", width + MARGIN);
  copy.prepend(shape("title", {}, title));
  // A token may hold what no XML may.
  return new XMLSerializer().serializeToString(copy)
    .replace(/[\0-\x08\v\f\x0e-\x1f\ufffe\uffff]/g, "\ufffd");
}

/** A color as programs that know no CSS read it: rgb(…), and its opacity. */
function paint(element, name, value) {
  const numbers = value.match(/[\d.]+(e-\d+)?/g)?.map(Number);
  if (!numbers) return element.setAttribute(name, value); // none
  const scale = value.startsWith("color(") ? 255 : 1;
  const [opacity = 1] = numbers.slice(3);
  element.setAttribute(name, opacity === 0 ? "none"
    : `rgb(${numbers.slice(0, 3).map((c) => Math.round(scale * c))})`);
  if (opacity === 0 || opacity === 1) return;
  const own = Number(element.getAttribute(`${name}-opacity`) ?? 1);
  element.setAttribute(`${name}-opacity`, own * opacity);
}
