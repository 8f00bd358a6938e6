// Predict, then see. On the page without JavaScript each choice is a
// <details>, and so are the result and the answer. This script makes buttons
// of the choices and keeps the rest closed until one of them is pressed. The
// choice is remembered in this browser only.
"use strict";

const keep = {
  get(key) {
    try { return localStorage.getItem(key); } catch { return null; }
  },
  set(key, value) {
    try { localStorage.setItem(key, value); } catch { /* not kept, then */ }
  },
  drop(key) {
    try { localStorage.removeItem(key); } catch { /* nor forgotten */ }
  },
};

function make(name, properties, ...children) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

// A <details> becomes a button and the feedback that it opens.
function makeOption(details, id) {
  const feedback = details.querySelector(".predict-feedback");
  const mark = make("span", {className: "predict-mark"});
  const button = make("button", {type: "button"},
    ...details.querySelector("summary").childNodes, " ", mark);
  feedback.id = id;
  button.setAttribute("aria-controls", id);
  const option = make("div", {className: "predict-option"}, button, feedback);
  details.replaceWith(option);
  return {
    button, feedback, mark, element: option,
    key: details.dataset.choice,
    letter: details.dataset.letter,
    right: "correct" in details.dataset,
    open(yes) {
      feedback.hidden = !yes;
      button.setAttribute("aria-expanded", yes);
    },
  };
}

class Question {
  constructor(box) {
    this.group = box.closest(".predict-group");
    this.key = `predict:${location.pathname}#${box.id}`;
    this.options = [...box.querySelectorAll(".predict-choice")].map(
      (details, n) => makeOption(details, `${box.id}-feedback-${n}`));
    this.status = make("span", {className: "predict-status"});
    this.status.setAttribute("role", "status");
    this.again = make("button",
      {type: "button", className: "predict-again"}, "Forget my choice");
    this.legend = make("legend");
    box.append(
      make("fieldset", {}, this.legend,
        ...this.options.map(option => option.element)),
      make("p", {className: "predict-foot"}, this.status, " ", this.again));
    // What the choice opens: results of cells, and the answer.
    this.parts = [...this.group.querySelectorAll("details")].filter(
      part => part.matches(".predict-answer")
        || part.matches(".tag_predict details.hide")
          && part.querySelector(".cell_output"));
    this.parts.forEach(part => part.classList.add("predict-part"));
    // A question from an earlier chapter has no result behind it.
    this.opens = this.parts.length ? " The result is open." : "";

    for (const option of this.options)
      option.button.addEventListener("click", () => this.press(option));
    this.again.addEventListener("click", () => {
      keep.drop(this.key);
      this.forget();
      this.options[0].button.focus();
    });
    this.forget();
    const kept = keep.get(this.key);
    const chosen = this.options.find(option => option.key === kept);
    if (chosen) this.choose(chosen);
  }

  press(option) {
    if (this.chosen) {
      option.open(option.feedback.hidden);
    } else {
      keep.set(this.key, option.key);
      this.choose(option);
    }
  }

  choose(chosen) {
    this.chosen = chosen;
    for (const option of this.options) {
      option.open(option === chosen);
      option.element.classList.toggle("predict-right", option.right);
      option.element.classList.toggle("predict-chosen", option === chosen);
      const verdict = option.right ? "✓ right" : "✗ not this";
      if (option === chosen) option.mark.textContent = `your choice: ${verdict}`;
      else option.mark.textContent = option.right ? verdict : "";
    }
    this.legend.textContent = "The other choices have an answer too: press them.";
    const right = this.options.filter(option => option.right)
      .map(option => option.letter).join(" and ");
    this.status.textContent = chosen.right
      ? `You chose ${chosen.letter}. That is right.${this.opens}`
      : `You chose ${chosen.letter}. Right is ${right}.${this.opens}`;
    this.again.hidden = false;
    this.show();
  }

  // Open what belongs to the question, also without a choice (by a link).
  show() {
    this.group.classList.remove("predict-closed");
    for (const part of this.parts) part.open = true;
  }

  forget() {
    this.chosen = null;
    for (const option of this.options) {
      option.open(false);
      option.element.classList.remove("predict-right", "predict-chosen");
      option.mark.textContent = "";
    }
    for (const part of this.parts) part.open = false;
    this.group.classList.add("predict-closed");
    this.legend.textContent = this.opens
      ? "Choose one. The result opens then." : "Choose one.";
    this.status.textContent = "";
    this.again.hidden = true;
  }
}

const questions = [...document.querySelectorAll(".predict-group > .predict")]
  .map(box => new Question(box));

// A link that leads into something closed opens it.
function openTarget() {
  const name = decodeURIComponent(location.hash.slice(1));
  const target = name && document.getElementById(name);
  if (!target) return;
  let opened = false;
  for (const question of questions) {
    if (question.parts.some(part => part.contains(target))) {
      question.show();
      opened = true;
    }
    for (const option of question.options)
      if (option.feedback.contains(target)) {
        option.open(true);
        opened = true;
      }
  }
  if (opened) target.scrollIntoView();
}
openTarget();
addEventListener("hashchange", openTarget);
document.addEventListener("click", event => {
  const link = event.target.closest?.('a[href*="#"]');
  if (link && link.href === location.href) setTimeout(openTarget);
});

// The theme lets wide output take the focus, so that arrow keys scroll it, but
// it measures once, when all this is closed.
document.addEventListener("toggle", event => {
  for (const box of event.target.querySelectorAll("pre, .cell_output > .output"))
    box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1;
}, true);

// On paper everything is open.
let opened = [];
addEventListener("beforeprint", () => {
  opened = questions.flatMap(question => question.parts)
    .filter(part => !part.open);
  for (const part of opened) part.open = true;
});
addEventListener("afterprint", () => {
  for (const part of opened) part.open = false;
});
