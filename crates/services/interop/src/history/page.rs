//! A page of the list: from the newest message back, behind the place where the page before ended.
//!
//! ```text
//!   newest  [ page ][ page ] ...  oldest        the index that narrows most, walked backward
//!                  ^ next: the place of the last message that was looked at
//! ```
//!
//! A page never counts, and never begins at a number of lines: what is stored and removed meanwhile moves no page. It looks at a
//! bounded number of messages for a bounded time, also where few match or none; the next page then goes on from there.

use std::time::Duration;

use node::clock::monotonic;
use store::{Direction, StoreError};

use super::filter::{Candidates, Walk};
use super::{EVERY_SERVICE, Line, ListPage, ListQuery};
use crate::error::InteropError;
use crate::record::Stored;
use crate::rows::Reader;

/// Messages that are looked at for one page at most.
const LOOKS_MAX: usize = 20_000;

/// How long a page is filled; one message more may be looked at.
const TIME_MAX: Duration = Duration::from_millis(800);

/// See the module's text; `may_see` and `seen` as for the list.
pub(super) fn page(
    reader: &Reader,
    query: &ListQuery,
    may_see: &mut dyn FnMut(&str) -> bool,
    seen: &dyn Fn(Stored) -> Stored,
) -> Result<ListPage, InteropError> {
    let wanted = query.filter.wanted_paths()?;
    let limit = if query.limit == 0 { ListQuery::LIMIT_MAX } else { query.limit.min(ListQuery::LIMIT_MAX) };
    let walk = Walk { direction: Direction::Backward, before: query.before, after: None };
    let mut candidates = Candidates::of(reader, &query.filter, &walk);
    let (mut page, until) = (ListPage::default(), monotonic() + TIME_MAX);
    loop {
        let is_full = page.lines.len() >= limit;
        page.is_partial = !is_full && (page.looked_at >= LOOKS_MAX || (page.looked_at > 0 && monotonic() > until));
        let Some(place) = candidates.next()? else {
            // `next` is where the walk was: there is nothing behind it.
            (page.next, page.is_partial) = (None, false);
            return Ok(page);
        };
        if is_full || page.is_partial {
            return Ok(page);
        }
        page.looked_at += 1;
        page.next = Some(place);
        let line = reader.inbound(place.id).and_then(|found| match found {
            Some((stored, _)) if may_see(&stored.service) => {
                query.filter.line(reader, place.id, &seen(stored), &wanted)
            }
            Some(_) | None => Ok(None),
        });
        match line {
            Ok(line) => page.lines.extend(line),
            // It is not known whether it matches: it is listed as damaged, to who may see all services.
            Err(InteropError::Store(StoreError::Corrupt(why))) => {
                page.lines.extend(may_see(EVERY_SERVICE).then(|| Line::damaged(place.id, why.to_string())));
            }
            Err(error) => return Err(error),
        }
    }
}
