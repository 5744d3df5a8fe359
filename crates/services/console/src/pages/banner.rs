//! The banner: the worst that is the matter with a node, in a sentence, with what to do about it.
//!
//! Pure: of figures alone, so that each case is a line of a test.

use maud::{Markup, html};

use crate::address::{operation_path, target};
use crate::admin::{NodeFigures, OperationFigures, OperationState};
use crate::format::{age, count, time};
use crate::gate::Visitor;
use crate::pages::operation_table::switch_form;
use crate::state::ConsoleState;

/// How old the oldest message that waits may be before that is the matter: 5 min.
const OLD_US: i64 = 300_000_000;

/// What is the matter, the worst first.
#[derive(Debug, Clone, Copy)]
pub(super) enum Matter<'f> {
    /// A trouble of the node.
    Trouble(&'f node::trouble::Trouble),
    /// Pages are damaged.
    Damaged(u64),
    /// A programming error has stopped an operation.
    Broken(&'f OperationFigures),
    /// An operation is suspended, and messages wait for it.
    Suspended(&'f OperationFigures),
    /// The oldest message of an operation waits for long.
    Old(&'f OperationFigures, i64),
    /// Messages wait for an operation that is not there.
    Homeless(&'f str, u64),
    /// An operation is suspended, and nothing waits for it yet.
    Idle(&'f OperationFigures),
}

/// All that is the matter.
pub(super) fn matters(figures: &NodeFigures) -> Vec<Matter<'_>> {
    let mut found: Vec<Matter<'_>> = figures.troubles.iter().map(Matter::Trouble).collect();
    found.extend((figures.damaged_pages > 0).then_some(Matter::Damaged(figures.damaged_pages)));
    let operations = || figures.operations.iter();
    found.extend(operations().filter(|one| one.state == OperationState::Broken).map(Matter::Broken));
    let suspended = || operations().filter(|one| one.state == OperationState::Suspended);
    found.extend(suspended().filter(|one| one.waiting > 0).map(Matter::Suspended));
    found.extend(operations().filter_map(|one| {
        let (_, since) = one.oldest.filter(|_| one.state != OperationState::Suspended)?;
        (figures.at_us.saturating_sub(since) > OLD_US).then_some(Matter::Old(one, since))
    }));
    found.extend(figures.homeless.iter().map(|(name, waiting)| Matter::Homeless(name, *waiting)));
    found.extend(suspended().filter(|one| one.waiting == 0).map(Matter::Idle));
    found
}

impl Matter<'_> {
    /// Whether nothing goes on with it.
    fn is_bad(&self) -> bool {
        match self {
            Matter::Trouble(trouble) => trouble.matter <= node::trouble::Matter::Operation,
            Matter::Damaged(_) | Matter::Broken(_) => true,
            Matter::Suspended(_) | Matter::Old(..) | Matter::Homeless(..) | Matter::Idle(_) => false,
        }
    }

    fn sentence(&self, now_us: i64) -> Markup {
        let waits = |one: &OperationFigures| {
            let oldest =
                one.oldest.map(|(_, since)| format!(", the oldest {}", age(since, now_us))).unwrap_or_default();
            format!(
                "{} {} behind it{oldest}.",
                count(one.waiting),
                if one.waiting == 1 { "message waits" } else { "messages wait" }
            )
        };
        match self {
            Matter::Trouble(trouble) => html! {
                b { (trouble.matter.name()) } " since " (time(trouble.since_us)) ": " (trouble.reason)
                span.sub { " Next: " (trouble.next) }
            },
            Matter::Damaged(pages) => html! {
                b { (count(*pages)) " damaged pages" } " are set aside; all else goes on. Next: " code { "terrace verify" }
            },
            Matter::Broken(one) => html! {
                b { (one.name) " has stopped" } " because of a programming error, which the node's log has. " (waits(one))
                span.sub { " Next: " code { "terrace stop" } " and " code { "terrace serve" } }
            },
            Matter::Suspended(one) | Matter::Idle(one) => html! {
                b { (one.name) " is suspended" }
                @if let Some((at_us, why)) = &one.since { " since " (time(*at_us)) ": " (why) "." }
                " " @if one.waiting > 0 { (waits(one)) } @else { "Nothing waits behind it yet." }
            },
            Matter::Old(one, since) => html! {
                b { (one.name) " is behind" } ": its oldest message has waited " (age(*since, now_us)) ". "
                (count(one.waiting)) " wait, " (count(one.retried)) " tries were repeated."
            },
            Matter::Homeless(name, waiting) => html! {
                b { (count(*waiting)) " messages wait for " (name) } ", an operation that the production does not have. \
                Next: put its file back, and " code { "terrace reload" }
            },
        }
    }

    fn operation(&self) -> Option<&OperationFigures> {
        match self {
            Matter::Suspended(one) | Matter::Old(one, _) | Matter::Broken(one) | Matter::Idle(one) => Some(one),
            Matter::Trouble(_) | Matter::Damaged(_) | Matter::Homeless(..) => None,
        }
    }
}

/// The banner.
pub(super) fn banner(state: &ConsoleState, visitor: &Visitor, figures: &NodeFigures) -> Markup {
    let all = matters(figures);
    let Some((worst, others)) = all.split_first() else {
        return html! {
            div.banner role="status" { div { span.dot {} b { "All is well." } " Everything that came in is stored, and nothing is stuck." } }
        };
    };
    let class = if worst.is_bad() { "bad" } else { "warn" };
    html! {
        div class={ "banner " (class) } role="status" {
            div { span class={ "dot " (class) } {} (worst.sentence(figures.at_us)) }
            @if let Some(one) = worst.operation() {
                a.button href=(operation_path(&one.name)) { "Look at it" }
                @if one.state == OperationState::Suspended { (switch_form(state, visitor, one, "/")) }
            }
        }
        @if !others.is_empty() {
            details.more.card {
                summary { (others.len()) @if others.len() == 1 { " more matter" } @else { " more matters" } }
                ul { @for other in others { li.break { (other.sentence(figures.at_us)) } } }
            }
        }
    }
}

/// What somebody has to look at, as links.
pub(super) fn to_do(figures: &NodeFigures) -> Markup {
    let to_do = figures.to_do;
    let shown = |number: u64| {
        if number >= crate::admin::ToDoFigures::MOST { format!("{} or more", count(number)) } else { count(number) }
    };
    let parts = [("errored", to_do.errored), ("failed", to_do.failed), ("unmatched", to_do.unmatched)];
    html! {
        @for (at, (name, number)) in parts.into_iter().filter(|(_, number)| *number > 0).enumerate() {
            @if at > 0 { ", " }
            a href=(target("/messages", &[("state", name)])) { (shown(number)) " " (name) }
        }
        @if parts.iter().all(|(_, number)| *number == 0) { "nothing errored, failed or unmatched" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(name: &str, state: OperationState, waiting: u64, oldest_us: Option<i64>) -> OperationFigures {
        let oldest = oldest_us.map(|at| (7, at));
        OperationFigures { name: name.into(), state, waiting, oldest, ..OperationFigures::default() }
    }

    #[test]
    fn the_worst_comes_first_and_what_only_waits_a_moment_is_no_matter() {
        let trouble = node::trouble::Trouble {
            matter: node::trouble::Matter::Full,
            since_us: 1,
            reason: "no room".into(),
            next: "make some".into(),
        };
        let figures = NodeFigures {
            at_us: 1_000_000_000,
            operations: vec![
                operation("fine", OperationState::Running, 3, Some(999_000_000)),
                operation("old", OperationState::Running, 9, Some(1_000_000)),
                operation("stopped", OperationState::Broken, 1, Some(999_000_000)),
                operation("idle", OperationState::Suspended, 0, None),
                operation("stuck", OperationState::Suspended, 5, Some(2)),
            ],
            troubles: vec![trouble],
            homeless: [("gone".to_owned(), 4)].into(),
            ..NodeFigures::default()
        };
        let texts: Vec<String> =
            matters(&figures).iter().map(|matter| matter.sentence(figures.at_us).into_string()).collect();
        let begins = [
            "<b>full",
            "<b>stopped has stopped",
            "<b>stuck is suspended",
            "<b>old is behind",
            "<b>4 messages",
            "<b>idle is",
        ];
        assert_eq!(texts.len(), begins.len(), "{texts:?}");
        for (text, begin) in texts.iter().zip(begins) {
            assert!(text.starts_with(begin), "{text} begins with {begin}");
        }
        assert!(matters(&NodeFigures::default()).is_empty());
    }
}
