#!/bin/bash
# Gets the console's files of others anew, from the npm registry: the versions below, unchanged, with their licences and checksums.
# Run it after changing a version; `cargo test -p web-console` compares the files with the checksums.
set -euo pipefail
cd "$(dirname "$0")/../crates/services/console/assets"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fetch() { # PACKAGE
  (cd "$work" && npm pack --silent "$1" > name && mkdir -p "$2" && tar xzf "$(cat name)" -C "$2" --strip-components=1)
}

fetch htmx.org@4.0.1 htmx
fetch uplot@1.6.32 uplot
fetch @fontsource-variable/inter@5.3.0 inter

cp "$work/htmx/dist/htmx.min.js" htmx.js
cp "$work/htmx/dist/ext/hx-sse.min.js" hx-sse.js
cp "$work/htmx/LICENSE" htmx.LICENSE
cp "$work/uplot/dist/uPlot.iife.min.js" uplot.js
cp "$work/uplot/dist/uPlot.min.css" uplot.css
cp "$work/uplot/LICENSE" uplot.LICENSE
cp "$work/inter/files/inter-latin-wght-normal.woff2" inter.woff2
cp "$work/inter/LICENSE" inter.LICENSE
chmod 644 ./*
sha256sum htmx.js hx-sse.js htmx.LICENSE uplot.js uplot.css uplot.LICENSE inter.woff2 inter.LICENSE > SHA256SUMS
