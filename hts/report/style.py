"""How the page of a run looks: from 360 pixels on, light and dark."""

CSS = """\
:root { color-scheme: light dark; --back: #fbfbfa; --card: #fff; --ink: #1c1d1f; --soft: #5d6167;
  --edge: #e1e2e0; --c0: #0067a3; --c1: #c2500a; --c2: #00795a; --c3: #a3457c; --c4: #94710a;
  --c5: #55606c; --good: #00795a; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --back: #131517; --card: #1c1f22; --ink: #e6e7e8;
  --soft: #a2a8ae; --edge: #33383d; --c0: #5db4ea; --c1: #f08a4b; --c2: #3fc39c; --c3: #e08fbf;
  --c4: #d9b648; --c5: #9aa7b4; --good: #3fc39c; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 16px; max-width: 1180px; background: var(--back);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 22px; line-height: 1.25; margin: 8px 0 4px; }
h2 { font-size: 17px; margin: 32px 0 10px; }
p { margin: 6px 0; }
.soft { color: var(--soft); }
.good { color: var(--good); }
.bad { color: var(--bad); }
.tiles { display: grid; gap: 10px; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); }
.tile b { display: block; font-size: 19px; font-variant-numeric: tabular-nums; }
.headline { grid-column: span 2; }
.headline b { font-size: 24px; }
.charts { display: grid; gap: 14px;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 320px), 1fr)); }
.tile, figure { background: var(--card); border: 1px solid var(--edge); border-radius: 8px;
  margin: 0; padding: 10px 12px; min-width: 0; }
.tile span, figcaption span { color: var(--soft); font-size: 13px; }
figcaption { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 10px;
  font-weight: 600; font-size: 14px; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 10.5px system-ui, sans-serif; fill: var(--soft); }
.end { text-anchor: end; }
.middle { text-anchor: middle; }
.grid { stroke: var(--edge); stroke-width: 0.8; fill: none; }
.line { fill: none; stroke-width: 1.5; stroke-linejoin: round; }
.line.c0 { stroke: var(--c0); } .line.c1 { stroke: var(--c1); } .line.c2 { stroke: var(--c2); }
.line.c3 { stroke: var(--c3); } .line.c4 { stroke: var(--c4); } .line.c5 { stroke: var(--c5); }
.dot.c0, .area.c0 { fill: var(--c0); } .dot.c1, .area.c1 { fill: var(--c1); }
.dot.c2, .area.c2 { fill: var(--c2); } .dot.c3, .area.c3 { fill: var(--c3); }
.dot.c4, .area.c4 { fill: var(--c4); } .dot.c5, .area.c5 { fill: var(--c5); }
.area { opacity: 0.75; }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px; }
.key.c0 { background: var(--c0); } .key.c1 { background: var(--c1); }
.key.c2 { background: var(--c2); } .key.c3 { background: var(--c3); }
.key.c4 { background: var(--c4); } .key.c5 { background: var(--c5); }
.keys { font-size: 13px; color: var(--soft); display: flex; flex-wrap: wrap; gap: 2px 14px; }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
th, td { text-align: left; vertical-align: top; padding: 4px 12px 4px 0;
  border-bottom: 1px solid var(--edge); font-variant-numeric: tabular-nums; }
th { font-weight: 600; color: var(--soft); font-size: 13px; }
@media (max-width: 560px) { .wide thead { display: none; }
  .wide tr { display: block; padding: 6px 0; border-bottom: 1px solid var(--edge); }
  .wide td { display: block; border: 0; padding: 0; } .wide td:first-child { font-weight: 600; }
  .wide td:not(:first-child):not(:empty)::before { content: attr(data-head) " ";
    color: var(--soft); font-size: 13px; } }
code, pre { font: 13px/1.5 ui-monospace, monospace; }
pre { background: var(--card); border: 1px solid var(--edge); border-radius: 8px; margin: 6px 0;
  padding: 10px 12px; white-space: pre-wrap; }
summary { cursor: pointer; color: var(--soft); margin: 8px 0; }
"""
