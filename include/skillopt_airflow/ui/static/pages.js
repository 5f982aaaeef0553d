"use strict";
// The script of the pages: Airflow's theme and time zone, links out of its frame, and regions that refresh.
(() => {
  const root = document.documentElement;

  function stored(key) {
    try {
      return localStorage.getItem(key);
    } catch {
      return null;
    }
  }

  function paint() {
    const theme = stored("theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  }

  function zone() {
    try {
      const chosen = JSON.parse(stored("timezone"));
      return new Intl.DateTimeFormat("en", { timeZone: chosen ?? undefined }).resolvedOptions().timeZone;
    } catch {
      return new Intl.DateTimeFormat("en").resolvedOptions().timeZone;
    }
  }

  function localise(within) {
    const timeZone = zone();
    const form = new Intl.DateTimeFormat("sv-SE", { timeZone, dateStyle: "short", timeStyle: "short" });
    for (const time of within.querySelectorAll("time[datetime]")) {
      const moment = new Date(time.dateTime);
      if (Number.isNaN(moment.getTime())) continue;
      time.textContent = form.format(moment);
      time.title = `${time.dateTime}, shown in ${timeZone}`;
    }
  }

  // Airflow's sandboxed frame can't navigate the page around it. Both have the same origin, so that page follows the link.
  function follow(event) {
    const link = event.target instanceof Element ? event.target.closest("a[target=_top]") : null;
    if (link === null || window.parent === window || event.defaultPrevented) return;
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    const outside = window.parent.document.createElement("a");
    outside.href = link.href;
    outside.click();
  }

  async function copy(event) {
    const button = event.target instanceof Element ? event.target.closest("button[data-copy]") : null;
    if (button === null) return;
    const text = document.getElementById(button.dataset.copy).textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
      button.textContent = "Selected: copy with the keyboard";
    }
  }

  const sent = new Map();

  function renew(region, fresh) {
    delete region.dataset.stale;
    // Keep an unchanged region, with any text that the user has selected.
    if (sent.get(region.id) === fresh.outerHTML) return;
    sent.set(region.id, fresh.outerHTML);
    announce(region, fresh);
    const focused = region.contains(document.activeElement) ? document.activeElement.id : "";
    for (const open of region.querySelectorAll("details[open][id]")) {
      fresh.querySelector(`#${CSS.escape(open.id)}`)?.setAttribute("open", "");
    }
    const scrolled = [...region.querySelectorAll("[tabindex][id]")].map((box) => [box.id, box.scrollLeft, box.scrollTop]);
    localise(fresh);
    region.replaceWith(fresh);
    for (const [id, left, top] of scrolled) document.getElementById(id)?.scrollTo({ left, top, behavior: "instant" });
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  }

  // Screen readers announce only the status line.
  function announce(region, fresh) {
    const text = fresh.dataset.announce;
    const status = document.querySelector("[role=status]");
    if (text && text !== region.dataset.announce && status !== null) status.textContent = text;
  }

  // Logged out, no permission, or gone: retrying doesn't help.
  const FINAL = [401, 403, 404];

  const regions = () => [...document.querySelectorAll("[data-refresh][id]")];

  async function refresh() {
    if (regions().length === 0) return;
    let refused = false;
    if (!document.hidden) {
      try {
        const answer = await fetch(location.href, { cache: "no-store", redirect: "error" });
        refused = FINAL.includes(answer.status);
        if (!answer.ok) throw new Error(String(answer.status));
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        for (const region of regions()) {
          const newer = fresh.getElementById(region.id);
          if (newer === null) throw new Error(region.id);
          renew(region, document.adoptNode(newer));
        }
      } catch {
        for (const region of regions()) region.dataset.stale = refused ? "refused" : "";
      }
    }
    if (!refused) later();
  }

  function later() {
    const waits = regions().map((one) => Number(one.dataset.refresh));
    if (waits.length > 0) setTimeout(refresh, 1000 * Math.max(1, Math.min(...waits)));
  }

  paint();
  addEventListener("storage", paint);
  addEventListener("DOMContentLoaded", () => {
    for (const region of regions()) sent.set(region.id, region.outerHTML);
    localise(document);
    document.addEventListener("click", follow);
    document.addEventListener("click", copy);
    for (const button of document.querySelectorAll("button[data-copy]")) button.hidden = false;
    later();
  });
})();
