// Draws the elements with data-chart by uPlot. The table below a chart is its legend: it has the newest values, or those
// at the time that mouse or arrow keys choose. Colours (--c0 to --c5) and sizes (.plot) are those of the style sheet.
"use strict";
(() => {
  const STROKES = 6;
  const DURATIONS = [  // ms between two ticks; days follow
    0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 3e4, 6e4, 12e4, 3e5, 6e5, 18e5, 36e5, 72e5, 216e5, 432e5,
  ];
  for (let day = 864e5; day < 1e18; day *= 10) DURATIONS.push(day, 2 * day, 5 * day);
  const UNITS = [[864e5, "d"], [36e5, "h"], [6e4, "min"], [1e3, "s"]];
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 2 });
  const shownIn = new Map();  // div.plot -> what it shows: element, numbers, plot once the size is known
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => () => style.getPropertyValue(name).trim();
  const clock = (second, length) => new Date(second * 1000).toISOString().slice(11, length);

  function duration(ms) {
    const [size, unit] = UNITS.find((each) => ms >= each[0]) ?? [1, "ms"];
    return `${Number((ms / size).toFixed(1))} ${unit}`;
  }

  function count(value) {
    const text = value < 100 && !Number.isInteger(value) ? value.toFixed(1) : Math.round(value).toLocaleString("en");
    return text.replaceAll(",", "\u202f");
  }

  function numbersOf(element) {
    const numbers = JSON.parse(element.dataset.chart);
    const columns = numbers.lines.map(([seconds, values]) => [seconds.map((each) => numbers.begin + each), values]);
    return { ...numbers, data: columns.length ? uPlot.join(columns) : [[]] };
  }

  // Puts the values at the cursor into the legend; without a cursor the newest ones, which came with the page.
  function fillLegend(plot, { element, numbers, newest }) {
    const { idx, idxs } = plot.cursor;
    const text = numbers.unit === "ms" ? duration : count;
    for (const [n, cell] of element.querySelectorAll(".at").entries()) {
      const value = idx === null ? null : numbers.data[n][n === 0 ? idx : idxs[n]];
      if (idx === null) cell.textContent = newest[n];
      else if (n === 0) cell.textContent = clock(value, 19);
      else cell.textContent = value == null ? "-" : text(value);
    }
  }

  function axes({ element, numbers }) {
    if (element.matches(".sparkline")) return [{ show: false }, { show: false }];
    const isTime = numbers.unit === "ms";
    const look = () => ({
      stroke: colour("--soft"), font: "12px system-ui, sans-serif",
      ticks: { show: false }, grid: { stroke: colour("--rule"), width: 1 },
    });
    return [
      { ...look(), size: 28, gap: 8, space: 48, incrs: [60, 120, 300, 600, 900],
        values: (plot, seconds) => seconds.map((second) => clock(second, 16)) },
      { ...look(), size: 60, gap: 6, space: 34, ...(isTime ? { incrs: DURATIONS } : {}),
        values: (plot, values) => values.map((value) => (isTime ? duration(value) : compact.format(value))) },
    ];
  }

  function options(shown) {
    const isSmall = shown.element.matches(".sparkline");
    const line = (each, n) => ({
      stroke: colour(`--c${n % STROKES}`), width: 1.5,
      points: { size: 5, show: (plot, series, first, last) => first === last },
    });
    return {
      series: [{}, ...shown.numbers.lines.map(line)],
      axes: axes(shown),
      scales: {
        x: { time: false, range: () => [shown.numbers.begin, shown.numbers.end] },
        y: { range: (plot, least, most) => [0, uPlot.rangeNum(0, most || 1, 0.1, true)[1]] },
      },
      padding: isSmall ? [2, 0, 2, 0] : [10, 20, 0, 0],
      legend: { show: false },
      cursor: { show: !isSmall, y: false, drag: { x: false, y: false } },
      hooks: { setCursor: [(plot) => fillLegend(plot, shown)] },
    };
  }

  function useKeys(plot, shown) {
    plot.root.tabIndex = 0;
    plot.root.setAttribute("role", "img");
    const title = shown.element.getAttribute("aria-label");
    plot.root.setAttribute("aria-label", `${title}: the table has the values; arrow keys choose their time`);
    plot.root.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      const times = plot.data[0];
      const wanted = (plot.cursor.idx ?? times.length) + step;
      plot.setCursor({ left: plot.valToPos(times[Math.min(Math.max(wanted, 0), times.length - 1)], "x"), top: 0 });
    });
    plot.root.addEventListener("blur", () => plot.setCursor({ left: -10, top: -10 }));
  }

  const observer = new ResizeObserver((entries) => {
    for (const { target, contentRect: { width, height } } of entries) {
      const shown = shownIn.get(target);
      if (shown === undefined || width === 0) continue;
      if (shown.plot !== undefined) { shown.plot.setSize({ width, height }); continue; }
      shown.plot = new uPlot({ width, height, ...options(shown) }, shown.numbers.data, target);
      if (shown.element.matches(".chart")) useKeys(shown.plot, shown);
    }
  });

  function show(box, shown, element, numbers) {
    const newest = [...element.querySelectorAll(".at")].map((cell) => cell.textContent);
    Object.assign(shown, { element, numbers, newest });
    if (element.matches(".sparkline")) element.replaceChildren(box);
    else element.prepend(box);
  }

  // Plots of the page before move to the charts of `fresh`: so charts do not flicker, and keep the cursor.
  function draw(fresh) {
    const free = [...shownIn.entries()];
    for (const element of fresh.querySelectorAll("[data-chart]")) {
      const numbers = numbersOf(element);
      if (numbers.data[0].length === 0) continue;
      const taken = free.findIndex(([, { element: before, numbers: { unit, lines } }]) =>
        before.className === element.className && unit === numbers.unit && lines.length === numbers.lines.length);
      if (taken < 0) {
        const box = document.createElement("div");
        box.className = "plot";
        shownIn.set(box, {});
        show(box, shownIn.get(box), element, numbers);
        observer.observe(box);
        continue;
      }
      const [[box, shown]] = free.splice(taken, 1);
      const { left, top } = shown.plot?.cursor ?? {};
      show(box, shown, element, numbers);
      shown.plot?.setData(numbers.data);
      shown.plot?.setCursor({ left, top });
    }
    for (const [box, { plot }] of free) {
      observer.unobserve(box);
      shownIn.delete(box);
      plot?.destroy();
    }
  }

  draw(document);
  document.addEventListener("renew", (event) => draw(event.detail));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const { plot } of shownIn.values()) plot?.redraw(false);
  });
})();
