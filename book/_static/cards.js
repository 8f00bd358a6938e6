// What a term means, or what a citation names, next to its link, while the
// pointer or the keyboard is on it. It is the link's title, which stays there
// for those who use neither.
"use strict";

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
  card.textContent = link.title;
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

const LINKS = ["glossary.html#term-", "bibliography.html#"]
  .map(page => `article a[title][href*="${page}"]`).join();
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
