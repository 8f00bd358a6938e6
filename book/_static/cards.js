// What a term means, what a citation names, or the figure that a link leads to,
// next to the link, while the pointer or the keyboard is on it. It is the link's
// title, which stays there for those who use neither. And a still figure, large.
"use strict";

const PICTURE = ".picture, img";
const DELAY = 200; // ms; a pointer that passes over a link opens nothing

const card = document.createElement("div");
card.id = "link-card";
card.className = "link-card";
card.setAttribute("role", "tooltip");
card.hidden = true;
let open = null; // the link that the card belongs to
let timer = 0;

function show(link) {
  hide();
  open = link;
  const figure = document.getElementById(link.hash.slice(1))?.closest("figure");
  card.replaceChildren(...(figure ? copied(figure) : [link.title]));
  link.dataset.title = link.title;
  link.removeAttribute("title"); // or the browser shows it as well
  link.setAttribute("aria-describedby", card.id);
  link.closest("article").append(card);
  card.hidden = false;
  const at = link.getClientRects()[0];
  const room = document.documentElement.clientWidth - card.offsetWidth - 8;
  const below = at.bottom + card.offsetHeight < innerHeight;
  card.style.left = `${Math.max(8, Math.min(at.left, room))}px`;
  card.style.top = `${below ? at.bottom : at.top - card.offsetHeight}px`;
}

// The picture and the caption of a figure, as they can be shown once more.
function copied(figure) {
  const parts = [figure.querySelector(PICTURE), figure.querySelector("figcaption")]
    .map(part => part.cloneNode(true));
  for (const part of parts) {
    part.hidden = false;
    for (const one of part.querySelectorAll(".headerlink, .zoom-in")) one.remove();
    for (const one of [part, ...part.querySelectorAll("[id]")])
      one.removeAttribute("id"); // what a drawing refers to is in the first
  }
  return parts;
}

function hide() {
  clearTimeout(timer);
  if (!open) return;
  open.title = open.dataset.title;
  open.removeAttribute("aria-describedby");
  card.hidden = true;
  open = null;
}

function soon(action) {
  clearTimeout(timer);
  timer = setTimeout(action, DELAY);
}

const LINKS = ["glossary.html#term-", "bibliography.html#", "#fig-"]
  .map(page => `article a[title][href*="${page}"]:not(.headerlink)`).join();
for (const link of document.querySelectorAll(LINKS)) {
  link.addEventListener("pointerenter", event => {
    if (event.pointerType === "mouse" && link !== open) soon(() => show(link));
  });
  link.addEventListener("pointerleave", () => soon(hide));
  link.addEventListener("focus", () => {
    if (link.matches(":focus-visible")) show(link);
  });
  link.addEventListener("blur", hide);
}
card.addEventListener("pointerenter", () => clearTimeout(timer));
card.addEventListener("pointerleave", () => soon(hide));
addEventListener("scroll", () => { // a card that is still to come may come
  if (open) hide();
}, {passive: true});
document.addEventListener("keydown", event => {
  if (event.key === "Escape") hide();
});

// Large: by a press on the picture, or on the button behind its caption.
const zoom = document.createElement("dialog");
zoom.className = "zoom";
zoom.addEventListener("click", () => zoom.close());
document.body.append(zoom);

function enlarge(figure, name) {
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = "Close";
  const [picture, caption] = copied(figure);
  picture.tabIndex = 0; // the arrow keys move what is larger than the window
  zoom.setAttribute("aria-label", name);
  zoom.replaceChildren(close, picture, caption);
  zoom.showModal();
}

// In the line of the caption's last word, never alone in the next one.
function behind(words, button) {
  let last = words;
  while (last.lastChild && !last.matches(".math")) last = last.lastChild;
  const end = document.createElement("span");
  end.className = "zoom-end";
  last.after(end);
  const cut = last.data?.trimEnd().lastIndexOf(" ") + 1;
  end.append(last.splitText?.(cut) ?? last, button);
}

for (const figure of document.querySelectorAll("article figure:not(.live-figure *)")) {
  const picture = figure.querySelector(PICTURE);
  const caption = figure.querySelector("figcaption p");
  if (!picture || !caption) continue;
  const name = figure.querySelector(".caption-number")?.textContent.trim() ?? "";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "zoom-in";
  button.setAttribute("aria-label", `Enlarge ${name}`.trim());
  button.innerHTML = '<svg viewBox="0 0 16 16" aria-hidden="true">'
    + '<path d="M9.5 2H14v4.5M14 2 9 7M6.5 14H2V9.5M2 14l5-5"/></svg>';
  // A word joiner: the button stays in the line of the last word.
  behind(caption.querySelector(".caption-text"), button);
  for (const part of [button, picture])
    part.addEventListener("click", () => enlarge(figure, name));
}
