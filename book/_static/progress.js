// Where you are in the book, kept in this browser only: a check mark at the
// chapters that you have read to their takeaway or end, and on the first page
// a link to go on. Without JavaScript, or where a browser keeps nothing, the
// book is the same without them.
"use strict";

const root = new URL(document.documentElement.dataset.content_root ?? "./",
                     location.href);
const storeKey = `progress:${root.pathname}`;

function load() {
  try {
    const kept = JSON.parse(localStorage.getItem(storeKey)) ?? {};
    return {read: [].concat(kept.read ?? []), last: kept.last ?? null};
  } catch {
    return {read: [], last: null};
  }
}

function save(progress) {
  try {
    localStorage.setItem(storeKey, JSON.stringify(progress));
  } catch { /* not kept, then */ }
}

function pageOf(link) {
  return new URL(link.href, location.href).pathname.slice(root.pathname.length);
}

const here = pageOf(location);
const links = [...document.querySelectorAll(
  ".bd-sidebar-primary nav a.internal:not(.navbar-brand)")];
const first = links.length ? pageOf(links[0]) : null;

function mark(link) {
  if (link.querySelector(".read-mark")) return;
  const sign = document.createElement("span");
  sign.className = "read-mark";
  sign.innerHTML =
    ' <span aria-hidden="true">✓</span><span class="visually-hidden">(read)</span>';
  link.append(sign);
}

function markAll(progress) {
  for (const link of links)
    if (progress.read.includes(pageOf(link))) mark(link);
}

// The page that was open last, or if that was read, the next that was not.
function whereToGoOn(progress) {
  const at = links.findIndex(link => pageOf(link) === progress.last);
  if (at < 0) return null;
  return links.slice(at).find(link => !progress.read.includes(pageOf(link)));
}

function offer(link) {
  if (!link) return;
  const go = document.createElement("a");
  go.href = link.href;
  go.textContent = `Continue with ${link.textContent.trim()}`;
  const line = document.createElement("p");
  line.className = "continue";
  line.append(go);
  document.querySelector("article h1")?.after(line);
}

// A page is read when its takeaway or its end has been on the screen, and
// the reader has moved: a short page is not read by being opened.
function watch() {
  const ends = document.querySelectorAll(
    "article :is([id$='-takeaway'], [id$='takeaways']), .prev-next-footer");
  const observer = new IntersectionObserver(entries => {
    if (!entries.some(entry => entry.isIntersecting)) return;
    observer.disconnect();
    const progress = load();
    if (!progress.read.includes(here)) progress.read.push(here);
    save(progress);
    markAll(progress);
  });
  addEventListener("scroll", () => {
    for (const end of ends) observer.observe(end);
  }, {once: true, passive: true});
}

const progress = load();
markAll(progress);
if (here === first) {
  offer(whereToGoOn(progress));
} else if (links.some(link => pageOf(link) === here)) {
  save({...progress, last: here});
  watch();
}
