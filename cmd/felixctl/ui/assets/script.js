"use strict";
// A cell of the matrix leads to the rules of its row and column. Without this script the names do.
document.addEventListener("click", (e) => {
  const cell = e.target.closest("table.matrix tbody td");
  if (!cell) return;
  const end = (th, name) => new URL(th.querySelector("a").href).searchParams.get(name);
  const head = cell.closest("table").tHead.rows[0].cells[cell.cellIndex];
  const q = new URLSearchParams({ from: end(cell.parentNode.cells[0], "from"), to: end(head, "to") });
  location.assign("/reach?" + q);
});
// The server says when there is something new. Live pages then load themselves again, unless somebody uses a form. Pages that
// nobody sees do not listen: a browser has six connections to a host.
const main = document.getElementById("main"), banner = document.getElementById("banner");
let events, first, silence;
// While the page is not known to be the present state, the banner says so.
function say(text) {
  banner.textContent = text ? "This page may be out of date. " + text : "";
  banner.hidden = !text;
}
function heard() {
  clearTimeout(silence);
  silence = setTimeout(say, 30000, "felixctl ui is silent.");
}
async function reload() {
  heard();
  if (first) {
    first = false;
    return;
  }
  if (main.contains(document.activeElement)) {
    say("There is something new: leave the form, or load the page again.");
    return;
  }
  let answer, text;
  try {
    answer = await fetch(location.href);
    text = await answer.text();
  } catch {
    say("felixctl ui does not answer.");
    return;
  }
  if (!answer.ok) {
    say("It cannot be loaded again: " + answer.status + ".");
    return;
  }
  say("");
  const page = new DOMParser().parseFromString(text, "text/html");
  const lefts = [...main.querySelectorAll(".scroll")].map((s) => s.scrollLeft);
  main.replaceChildren(...page.getElementById("main").childNodes);
  main.querySelectorAll(".scroll").forEach((s, i) => { s.scrollLeft = lefts[i] || 0; });
}
function listen() {
  if (events) events.close();
  events = null;
  clearTimeout(silence);
  if (document.hidden) return;
  events = new EventSource("/events");
  events.onmessage = reload;
  events.onerror = () => say("felixctl ui does not answer.");
  events.addEventListener("state", (e) => {
    heard();
    if (e.data) say(e.data);
  });
  heard();
}
if (document.body.hasAttribute("data-live")) {
  first = true;
  listen();
  document.addEventListener("visibilitychange", listen);
}
