//! What browsers load besides pages: scripts, styles and a font, part of the program, under names that change with their content.
//!
//! ```text
//!   assets/NAME --include_bytes!--> Asset --SHA-256--> /assets/HASH/NAME      cached for ever: other content has another name
//! ```
//!
//! Those of others are unchanged files of their packages: `assets/SHA256SUMS` has their checksums, and a licence lies beside each.
//! `scripts/vendor-console.sh` gets them anew.
//!
//! The compressed form is made once. Pages are not compressed: they have tokens of forms beside texts that others may choose.

use std::io::Write as _;
use std::sync::LazyLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::secret;

/// Something that browsers load.
#[derive(Debug)]
pub(crate) struct Asset {
    name: &'static str,
    /// Its content type.
    pub(crate) kind: &'static str,
    /// It as it is.
    pub(crate) plain: Bytes,
    /// It, compressed by gzip; none where that makes it no smaller.
    pub(crate) packed: Option<Bytes>,
    path: String,
}

const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// Where the style sheet names the font.
const FONT_MARK: &str = "{inter.woff2}";

fn asset(name: &'static str, kind: &'static str, plain: Bytes) -> Asset {
    let hash: String = secret::sha256(&plain)[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let path = format!("/assets/{hash}/{name}");
    let packed = pack(&plain).filter(|packed| packed.len() < plain.len());
    Asset { name, kind, plain, packed, path }
}

fn pack(plain: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

static ASSETS: LazyLock<Vec<Asset>> = LazyLock::new(|| {
    let font = asset("inter.woff2", "font/woff2", Bytes::from_static(include_bytes!("../assets/inter.woff2")));
    let style = include_str!("../assets/console.css").replace(FONT_MARK, &font.path);
    let script = |name, bytes| asset(name, SCRIPT, Bytes::from_static(bytes));
    vec![
        font,
        asset("console.css", STYLE, Bytes::from(style)),
        asset("uplot.css", STYLE, Bytes::from_static(include_bytes!("../assets/uplot.css"))),
        asset("icon.svg", "image/svg+xml", Bytes::from_static(include_bytes!("../assets/icon.svg"))),
        script("console.js", include_bytes!("../assets/console.js")),
        script("htmx.js", include_bytes!("../assets/htmx.js")),
        script("hx-sse.js", include_bytes!("../assets/hx-sse.js")),
        script("uplot.js", include_bytes!("../assets/uplot.js")),
    ]
});

/// The path of an asset. It is one of this file's.
pub(crate) fn path(name: &str) -> &'static str {
    ASSETS.iter().find(|asset| asset.name == name).map_or("/", |asset| asset.path.as_str())
}

/// The asset of a path.
pub(crate) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_others_are_those_whose_checksums_are_listed_and_each_has_its_licence() {
        let files: [(&str, &[u8]); 7] = [
            ("htmx.js", include_bytes!("../assets/htmx.js")),
            ("hx-sse.js", include_bytes!("../assets/hx-sse.js")),
            ("htmx.LICENSE", include_bytes!("../assets/htmx.LICENSE")),
            ("uplot.js", include_bytes!("../assets/uplot.js")),
            ("uplot.css", include_bytes!("../assets/uplot.css")),
            ("uplot.LICENSE", include_bytes!("../assets/uplot.LICENSE")),
            ("inter.woff2", include_bytes!("../assets/inter.woff2")),
        ];
        let font = ("inter.LICENSE", &include_bytes!("../assets/inter.LICENSE")[..]);
        let listed = include_str!("../assets/SHA256SUMS");
        assert_eq!(listed.lines().count(), files.len() + 1);
        for (name, bytes) in files.into_iter().chain([font]) {
            let sum: String = secret::sha256(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(listed.lines().any(|line| line == format!("{sum}  {name}")), "{name}: {sum}");
        }
    }

    #[test]
    fn an_asset_is_found_by_its_own_path_only_and_the_style_sheet_names_the_font() {
        for asset in ASSETS.iter() {
            assert_eq!(find(path(asset.name)).map(|found| found.name), Some(asset.name));
        }
        for wrong in ["/assets/0000000000000000/console.js", "/assets/console.js", "/assets/../console.js"] {
            assert!(find(wrong).is_none(), "{wrong}");
        }
        let style = find(path("console.css")).expect("there");
        let text = String::from_utf8(style.plain.to_vec()).expect("text");
        assert!(text.contains(path("inter.woff2")) && !text.contains(FONT_MARK));
        assert!(!text.contains("http:") && !text.contains("https:"), "nothing is loaded from elsewhere");
    }

    #[test]
    fn a_first_visit_loads_little() {
        let bytes = |asset: &Asset| asset.packed.as_ref().unwrap_or(&asset.plain).len();
        let all: usize = ASSETS.iter().map(bytes).sum();
        assert!(all < 120_000, "{all} bytes, and a page has some more");
    }
}
