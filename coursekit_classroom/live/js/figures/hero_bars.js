// Of <live-hero>: five bars of the next token, what they were before a swap,
// and the ball that falls on the one that is drawn.
import { make } from "./parts.js";
import { othersOf, say, tenths } from "./strings.js";

const FALL = 380, FLIGHT = 420; // milliseconds

/** Bars, scaled to the largest; an outline is what one was before. */
export class NextBars {
  constructor(n) {
    this.rows = Array.from({ length: n }, () => row());
    this.others = row("hero-others");
    this.ball = make("span", { className: "hero-ball", "aria-hidden": true });
    this.element = make("div", { className: "hero-next" },
      make("p", { className: "hero-head" }, say("hero.next")),
      make("ol", { className: "hero-bars", role: "list",
        "aria-label": say("hero.bars") },
      ...this.rows.map(({ item }) => item), this.others.item), this.ball);
    this.ids = [];
  }

  /** Show the most probable tokens: [{id, name, p}] and the old p of each. */
  set(best, before, nOthers) {
    const old = best.map(({ id }) => before?.[id] ?? 0);
    const scale = Math.max(...best.map(({ p }) => p), ...old);
    best.forEach(({ name, p }, i) =>
      fill(this.rows[i], name, tenths(p), p / scale, before && old[i] / scale));
    fill(this.others, say("hero.others", { n: nOthers.toLocaleString("en") }),
      othersOf(best.map(({ p }) => p)));
    this.ids = best.map(({ id }) => id);
  }

  /** The row of a token: one of the five, or that of all others. */
  rowOf(id) {
    return this.rows[this.ids.indexOf(id)] ?? this.others;
  }

  /** Let the ball fall on a token's row; in the last one it gets a name. */
  async fall({ id, name, p }, time = FALL) {
    const row = this.rowOf(id);
    fill(row, name, tenths(p));
    const target = row.item.offsetTop + row.item.offsetHeight / 2;
    const end = `translateY(${target}px)`;
    this.motion = this.ball.animate([
      { transform: "translateY(0)", opacity: 1, easing: "cubic-bezier(.5,0,1,.6)" },
      { transform: end, offset: 0.7, easing: "ease-out" },
      { transform: `translateY(${target - 9}px)`, offset: 0.85, easing: "ease-in" },
      { transform: end, opacity: 1 },
    ], { duration: time });
    await this.motion.finished;
  }

  /** Let a token's name fly to a place on the page. */
  async fly(id, { x, y }) {
    const { name } = this.rowOf(id);
    const from = name.getBoundingClientRect();
    const flying = this.flying = make("span",
      { className: "hero-flying", "aria-hidden": true }, name.textContent);
    flying.style.left = `${name.offsetLeft}px`;
    flying.style.top = `${name.offsetTop}px`;
    this.element.append(flying);
    const [dx, dy] = [x - from.left, y - from.top];
    this.motion = flying.animate([
      { transform: "none" },
      { transform: `translate(${dx / 2}px, ${dy / 2 - 40}px)`, offset: 0.5 },
      { transform: `translate(${dx}px, ${dy}px)` },
    ], { duration: FLIGHT, easing: "ease-in-out" });
    await this.motion.finished;
  }

  /** Nothing moves any more. */
  stop() {
    this.motion?.finish();
    this.flying?.remove();
  }
}

function row(className = "") {
  const name = make("span", { className: "hero-name" });
  const track = make("span", { className: "hero-track" },
    make("span"), make("span"));
  const share = make("span", { className: "hero-share" });
  return { name, track, share,
    item: make("li", { className }, name, track, share) };
}

function fill({ name, track, share }, text, percent, length, old) {
  name.textContent = text;
  share.textContent = percent;
  if (length === undefined) return;
  track.style.setProperty("--p", length.toFixed(4));
  track.style.setProperty("--old", (old ?? 0).toFixed(4));
  track.classList.toggle("hero-new", old === undefined);
}
