// What pages do beside being read: `/` focuses the box, commands are copied, charts are drawn, a tail is watched. Every other page works
// without it.
'use strict';
(() => {
  const box = () => document.getElementById('q');
  document.addEventListener('keydown', (event) => {
    const on = event.target;
    const writes = on instanceof HTMLElement && (on.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(on.tagName));
    if (event.key === '/' && !writes && !event.ctrlKey && !event.metaKey && !event.altKey && box()) {
      event.preventDefault();
      box().focus();
      box().select();
    }
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey) && on instanceof HTMLTextAreaElement && on.form) {
      event.preventDefault();
      on.form.requestSubmit();
    }
    if (event.key === 'Escape') {
      document.querySelectorAll('details.who[open]').forEach((menu) => {
        menu.open = false;
        menu.querySelector('summary').focus();
      });
    }
  });

  document.addEventListener('click', (event) => {
    document.querySelectorAll('details.who[open]').forEach((menu) => {
      if (!menu.contains(event.target)) menu.open = false;
    });
    const button = event.target.closest && event.target.closest('button[data-copy]');
    if (!button) return;
    const text = button.parentElement.querySelector('code').textContent;
    const done = (word) => {
      button.textContent = word;
      setTimeout(() => { button.textContent = 'Copy'; }, 1500);
    };
    if (navigator.clipboard) {
      navigator.clipboard.writeText(text).then(() => done('Copied'), () => done('Not copied'));
    } else {
      done('Not copied');
    }
  });

  // A form that was sent once is not sent again by a second Enter.
  document.addEventListener('submit', (event) => {
    const form = event.target;
    if (form.method !== 'post' || (event.submitter && event.submitter.hasAttribute('data-download'))) return;
    if (form.dataset.sent) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = 'yes';
    setTimeout(() => { delete form.dataset.sent; }, 5000);
  });

  // Charts: a host has its lines in data-chart, its first points in data-points; #points has the newest ones.
  const charts = new Map();
  const KEPT = 300;
  const colour = (name) => {
    const probe = document.createElement('i');
    probe.className = 'hidden';
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  };
  const short = (value) => {
    if (value == null) return '';
    const steps = [[1e9, 'G'], [1e6, 'M'], [1e3, 'k']];
    for (const [size, unit] of steps) {
      if (Math.abs(value) >= size) return (value / size).toFixed(Math.abs(value) >= 100 * size ? 0 : 1).replace('.0', '') + unit;
    }
    return Math.abs(value) >= 10 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1);
  };
  const long = (value) => (value == null ? '-' : value.toLocaleString('en', { maximumFractionDigits: 1 }));

  const draw = (host) => {
    const { lines } = JSON.parse(host.dataset.chart);
    const points = charts.has(host) ? charts.get(host).points : JSON.parse(host.dataset.points);
    const old = charts.get(host);
    if (old && old.plot) old.plot.destroy();
    host.replaceChildren();
    const axis = () => ({
      stroke: colour('--dim'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false }, font: '11px Inter, sans-serif',
    });
    const time = { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' };
    const clock = (at) => new Date(at * 1000).toLocaleTimeString('en-GB', time);
    const plot = new uPlot({
      width: host.clientWidth || 400,
      height: 190,
      padding: [8, 30, 0, 0],
      cursor: { sync: { key: 'terrace' }, points: { size: 6 } },
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.12 : 1] } },
      series: [
        { label: 'time', value: (_, at) => (at == null ? '-' : clock(at)) },
        ...lines.map((line, at) => ({
          label: line.label, stroke: colour(line.colour), width: 1.75, dash: at > 1 ? [5, 4] : undefined, spanGaps: false,
          points: { show: false }, value: (_, value) => long(value) + (value == null ? '' : line.unit),
        })),
      ],
      axes: [
        { ...axis(), size: 26, gap: 4, values: (_, all) => all.map(clock), space: 90 },
        { ...axis(), size: 46, values: (_, all) => all.map(short) },
      ],
    }, points, host);
    charts.set(host, { plot, points });
  };

  const add = (source) => {
    const at = Number(source.dataset.at);
    const values = JSON.parse(source.dataset.values);
    for (const [host, { plot, points }] of charts) {
      const now = values[host.id];
      if (!now || at <= (points[0][points[0].length - 1] || 0)) continue;
      points[0].push(at);
      now.forEach((value, line) => points[line + 1].push(value));
      if (points[0].length > KEPT) points.forEach((line) => line.shift());
      plot.setData(points);
    }
  };

  const begin = () => {
    if (window.uPlot) document.querySelectorAll('[data-chart]').forEach(draw);
    const source = document.getElementById('points');
    if (source) {
      new MutationObserver(() => add(document.getElementById('points')))
        .observe(source, { attributes: true, attributeFilter: ['data-at'] });
    }
    let width = window.innerWidth;
    window.addEventListener('resize', () => {
      if (window.innerWidth === width) return;
      width = window.innerWidth;
      charts.forEach(({ plot }, host) => plot.setSize({ width: host.clientWidth, height: 190 }));
    });
    window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => charts.forEach((_, host) => draw(host)));
  };
  const state = (name, text) => document.querySelectorAll('.live').forEach((live) => {
    live.dataset.state = name;
    live.querySelector('span').textContent = text;
  });
  document.addEventListener('htmx:sse:after:message', () => state('live', 'live'));
  document.addEventListener('htmx:sse:error', (event) => {
    state('lost', 'not live');
    // Who is not signed in any more learns that from the next page.
    if (event.detail && event.detail.status === 401) location.reload();
  });
  document.addEventListener('htmx:sse:close', () => state('lost', 'not live'));

  // A tail: rows from a stream, the newest on top. Its button ends it and begins it again; what is shown stays.
  const ROWS = 500;
  const watch = () => {
    const tail = document.getElementById('tail');
    if (!tail) return;
    const button = document.getElementById('tail-switch');
    const rows = tail.querySelector('tbody');
    let source = null;
    const add = (text) => {
      const made = document.createElement('template');
      made.innerHTML = text;
      rows.prepend(made.content);
      while (rows.rows.length > ROWS) {
        if (rows.lastElementChild.contains(document.activeElement)) button.focus();
        rows.lastElementChild.remove();
      }
    };
    const end = (name, text) => {
      source.close();
      source = null;
      button.textContent = 'Go on';
      state(name, text);
    };
    const start = () => {
      source = new EventSource(tail.dataset.from);
      source.addEventListener('open', () => state('live', 'live'));
      source.addEventListener('message', (event) => add(event.data));
      source.addEventListener('ended', (event) => {
        add(event.data);
        end('lost', 'ended');
      });
      // The browser tries again by itself, but where it was refused.
      source.addEventListener('error', () => {
        if (source.readyState === EventSource.CLOSED) end('lost', 'not live'); else state('lost', 'not live');
      });
      button.textContent = 'Pause';
    };
    button.hidden = false;
    button.addEventListener('click', () => { if (source) end('paused', 'paused'); else start(); });
    start();
  };
  const prepare = () => {
    begin();
    watch();
  };
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', prepare); else prepare();
})();
