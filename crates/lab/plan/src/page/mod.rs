//! A plan as one page of HTML, which needs no network: its style, script and data are in it.
//!
//! ```text
//!   page.html   the frame, with three places
//!     page.css    style: light, dark, on paper, from 390 pixels
//!     draw.js     elements, scales, axes
//!     page.js     cost against time, the sliders of prices, the list of mixes
//!     charts.js   time by part, miss-ratio curves, load by hour, bought and used, texts
//!     data        the plan and the records that resemble it, as JSON
//! ```
//!
//! Invariants: nothing of a plan becomes markup: its texts are in the JSON, whose `<`, `>` and `&` are escaped, and the script makes text nodes
//! of them. The page's own policy (Content-Security-Policy) forbids every request. A test with a browser holds both (`scripts/test-plan.sh`).

mod command;

pub use command::{PageArgs, write_page};

use serde::Serialize;

use crate::evidence::{EvidenceRecord, resembling};
use crate::mix::report::PlanReport;

const FRAME: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPTS: [&str; 3] = [include_str!("draw.js"), include_str!("page.js"), include_str!("charts.js")];

#[derive(Serialize)]
struct PageData<'a> {
    plan: &'a PlanReport,
    evidence: Vec<&'static EvidenceRecord>,
}

/// The page of a plan.
///
/// # Errors
/// The plan has a number that JSON cannot have.
pub fn page(plan: &PlanReport) -> Result<String, serde_json::Error> {
    let data = escaped(&serde_json::to_string(&PageData { plan, evidence: resembling(plan) })?);
    let mut page = String::with_capacity(FRAME.len() + STYLE.len() + data.len() + 64 * 1024);
    let mut rest = FRAME;
    for (place, text) in [("/*STYLE*/", STYLE.to_owned()), ("/*DATA*/", data), ("/*SCRIPT*/", SCRIPTS.concat())] {
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        page += before;
        page += &text;
        rest = after;
    }
    page += rest;
    Ok(page)
}

/// JSON that no parser of HTML takes for markup. The letters are only ever inside of strings.
fn escaped(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        match letter {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => text += &format!("\\u{:04x}", u32::from(letter)),
            letter => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_asks_for_nothing_and_texts_of_a_plan_are_never_markup() {
        let hostile = "</script><script>alert(1)</script><!-- & \u{2028} /*SCRIPT*/ /*STYLE*/ \"'";
        let plan = PlanReport { says: hostile.into(), version: hostile.into(), ..PlanReport::default() };
        let page = page(&plan).expect("a page");
        for place in ["/*STYLE*/", "/*DATA*/"] {
            assert_eq!(FRAME.matches(place).count(), 1, "{place}");
        }
        assert_eq!(page.matches("</script>").count(), FRAME.matches("</script>").count());
        assert!(!page.contains("alert(1)</script>") && !page.contains('\u{2028}'));
        let start = page.find("id=\"data\">").expect("data") + "id=\"data\">".len();
        let end = start + page[start..].find("</script>").expect("its end");
        let data: serde_json::Value = serde_json::from_str(&page[start..end]).expect("JSON");
        assert_eq!(data["plan"]["says"], hostile);
        let own = [FRAME, STYLE, SCRIPTS[0], SCRIPTS[1], SCRIPTS[2]].concat();
        for outside in [
            "https://",
            "src=",
            "href=\"http",
            "@import",
            "url(h",
            "fetch(",
            "XMLHttpRequest",
            "innerHTML",
            "insertAdjacent",
            "document.write",
            "eval(",
        ] {
            assert!(!own.contains(outside), "{outside}");
        }
        assert_eq!(own.matches("http://").count(), 1, "the name of SVG");
        assert!(own.contains("default-src 'none'"));
    }
}
