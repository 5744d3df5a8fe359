//! [`MessagesFields`]: a search of messages as the fields of a page have it, and as its address.

use crate::address::target;
use crate::admin::MessageQuery;
use crate::form::Fields;
use crate::format::moment;
use crate::query_text::{self, Asked};

/// Lines of a page.
pub(crate) const PAGE_LINES: usize = 50;

/// The fields of the page, as they came in its query.
#[derive(Debug, Clone, Default)]
pub(crate) struct MessagesFields {
    pub(super) q: String,
    pub(super) service: String,
    pub(super) to: String,
    pub(super) state: String,
    pub(super) since: String,
    pub(super) before: String,
}

impl MessagesFields {
    pub(super) fn of(fields: &Fields) -> MessagesFields {
        let text = |name| fields.get(name).unwrap_or_default().to_owned();
        MessagesFields {
            q: text("q"),
            service: text("service"),
            to: text("to"),
            state: text("state"),
            since: text("since"),
            before: text("before"),
        }
    }

    /// The fields but the page's place, by their names.
    pub(super) fn pairs(&self) -> [(&'static str, &str); 5] {
        [("q", &self.q), ("service", &self.service), ("to", &self.to), ("state", &self.state), ("since", &self.since)]
    }

    /// An address of a path about the same search, from its first page.
    pub(super) fn address(&self, path: &str) -> String {
        target(path, &self.pairs())
    }

    /// The page's address with one field changed, from its first page.
    pub(super) fn with(&self, name: &str, value: &str) -> String {
        let pairs = self.pairs().map(|(field, own)| (field, if field == name { value } else { own }));
        target("/messages", &pairs)
    }

    /// What is asked for. Errors: the text for who asked.
    pub(super) fn wanted(&self, now_us: i64) -> Result<Asked, String> {
        let mut asked = query_text::read(&self.q, now_us)?;
        let query = &mut asked.query;
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        query.service = given(&self.service).or(query.service.take());
        query.interface = given(&self.to).or(query.interface.take());
        if !self.state.is_empty() {
            query_text::select_state(query, &self.state)?;
        }
        if !self.since.is_empty() {
            let since = moment(&self.since, now_us);
            query.since_us = Some(since.ok_or_else(|| format!("`{}` is neither a time nor an age as 2h", self.since))?);
        }
        if !self.before.is_empty() {
            query.before =
                Some(place_of(&self.before).ok_or("the place of the page cannot be read: begin at the newest")?);
        }
        query.limit = PAGE_LINES;
        Ok(asked)
    }
}

/// The place of a page as a text, `TIME.ID`.
pub(crate) fn place_text((received_us, id): (i64, u64)) -> String {
    format!("{received_us}.{id}")
}

/// The place that a text names.
pub(crate) fn place_of(text: &str) -> Option<(i64, u64)> {
    let (received_us, id) = text.split_once('.')?;
    Some((received_us.parse().ok()?, id.parse().ok()?))
}

/// The query of an API request, of the same fields.
pub(crate) fn query_of(fields: &Fields, now_us: i64) -> Result<MessageQuery, String> {
    let mut query = MessagesFields::of(fields).wanted(now_us)?.query;
    let text = |name| fields.get(name).map(str::to_owned);
    query.mrn = text("mrn").or(query.mrn.take());
    query.control_id = text("control").or(query.control_id.take());
    query.kind = text("type").or(query.kind.take());
    if let Some(limit) = fields.get("limit") {
        query.limit = limit.parse().ok().filter(|limit| (1..=1_000).contains(limit)).ok_or("limit is 1 to 1000")?;
    }
    Ok(query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_page_goes_over_and_back() {
        for place in [(0, 7), (1_763_800_000_000_000, u64::MAX), (-1, 0)] {
            assert_eq!(place_of(&place_text(place)), Some(place));
        }
        for wrong in ["", "7", "a.b", "1.2.3", "1."] {
            assert_eq!(place_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_chip_changes_one_field_and_begins_at_the_newest() {
        let fields =
            MessagesFields { q: "a b".into(), state: "failed".into(), before: "1.2".into(), ..Default::default() };
        assert_eq!(fields.with("state", "errored"), "/messages?q=a%20b&state=errored");
        assert_eq!(fields.with("state", ""), "/messages?q=a%20b");
        assert!(MessagesFields { before: "x".into(), ..Default::default() }.wanted(0).is_err());
    }
}
