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
const main = document.getElementById("main");
let events, first;
async function reload() {
  if (first || main.contains(document.activeElement)) {
    first = false;
    return;
  }
  const answer = await fetch(location.href);
  if (!answer.ok) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const lefts = [...main.querySelectorAll(".scroll")].map((s) => s.scrollLeft);
  main.replaceChildren(...page.getElementById("main").childNodes);
  main.querySelectorAll(".scroll").forEach((s, i) => { s.scrollLeft = lefts[i] || 0; });
}
function listen() {
  if (events) events.close();
  events = null;
  if (document.hidden) return;
  events = new EventSource("/events");
  events.onmessage = reload;
}
if (document.body.hasAttribute("data-live")) {
  first = true;
  listen();
  document.addEventListener("visibilitychange", listen);
}
