// Loads the page again every few seconds and puts its part #live in the place of the old one. Everything works without.
"use strict";
(() => {
  const seconds = Number(document.body.dataset.refresh);
  const status = document.getElementById("status");
  let shown = new Date();

  // A reader is not disturbed: nothing moves while text is selected or something in #live is being typed or opened.
  function isBusy(live) {
    const focused = document.activeElement;
    const selection = document.getSelection();
    return document.hidden || live.querySelector("details[open]") !== null ||
      (selection !== null && !selection.isCollapsed && live.contains(selection.anchorNode)) ||
      (live.contains(focused) && focused.matches("input, select, textarea, button"));
  }

  // Focus and the positions of wide tables stay where they were.
  function replace(live, fresh) {
    const focused = live.contains(document.activeElement) ? document.activeElement : null;
    const href = focused && focused.getAttribute("href");
    const label = focused && focused.getAttribute("aria-label");
    const positions = [...live.querySelectorAll(".scroll")].map((part) => [part.getAttribute("aria-label"), part.scrollLeft]);
    document.dispatchEvent(new CustomEvent("renew", { detail: fresh }));  // charts.js moves its plots
    live.replaceWith(fresh);
    for (const [name, left] of positions) {
      for (const part of fresh.querySelectorAll(".scroll")) {
        if (part.getAttribute("aria-label") === name) part.scrollLeft = left;
      }
    }
    if (focused === null) return;
    if (fresh.contains(focused)) { focused.focus({ preventScroll: true }); return; }  // it has moved, as plots do
    for (const part of fresh.querySelectorAll(href === null ? ".scroll" : "a")) {
      if (href === null ? part.getAttribute("aria-label") === label : part.getAttribute("href") === href) {
        part.focus({ preventScroll: true });
        return;
      }
    }
  }

  async function refresh() {
    const live = document.getElementById("live");
    if (isBusy(live)) return;
    try {
      const answer = await fetch(location.href, { headers: { "X-Refresh": "1" }, signal: AbortSignal.timeout(30000) });
      if (answer.redirected) { location.reload(); return; }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("live");
      if (fresh === null) throw new Error(String(answer.status));
      replace(live, document.adoptNode(fresh));
      shown = new Date();
      status.textContent = "";
      status.className = "";
      const count = page.querySelector("nav .count");
      const here = document.querySelector('nav a[href="/alarms"]');
      here.textContent = "Alarms";
      if (count !== null) here.append(" ", document.adoptNode(count));
    } catch {
      status.textContent = `The console does not answer. This page is of ${shown.toLocaleTimeString()}.`;
      status.className = "fault";
    }
  }

  async function again() {
    await refresh();
    setTimeout(again, seconds * 1000);
  }
  if (seconds > 0) setTimeout(again, seconds * 1000);

  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, select, textarea")) return;
    const field = document.querySelector('[data-shortcut="/"]');
    if (field !== null) { event.preventDefault(); field.focus(); field.select(); }
  });
})();
