//! Compares `docs/sql.md` with the engine: its list of functions is that of a session, the statements that it marks as
//! accepted run, and those that it marks as refused fail with the SQLSTATE that it states.
//!
//! ```text
//!   ## Functions             every name between backticks is a function
//!   ```sql accepted          a statement a line
//!   ```sql refused           `statement; -- SQLSTATE`
//! ```
//!
//! Functions of the system catalogs belong to the wire, and are not in the list.

use std::collections::BTreeSet;

use crate::rights::{engine_and_guard, session_of};
use crate::support::{session, try_run};

const PAGE: &str = include_str!("../../../../../docs/sql.md");

/// The lines of all blocks of a kind.
fn lines_of(kind: &str) -> Vec<&'static str> {
    let opening = format!("```sql {kind}\n");
    let blocks = PAGE.split(opening.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    blocks.flat_map(str::lines).filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_page_on_sql_names_the_functions_of_a_session_and_no_others() {
    let state = session().context().state();
    let mut known: BTreeSet<&str> = state.scalar_functions().keys().map(String::as_str).collect();
    known.extend(state.aggregate_functions().keys().map(String::as_str));
    known.extend(state.window_functions().keys().map(String::as_str));
    known.extend(state.table_functions().keys().map(String::as_str));
    let section = PAGE.split("\n## Functions\n").nth(1).and_then(|rest| rest.split("\n## ").next());
    let section = section.expect("the page has a section on functions");
    let is_name = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let named: BTreeSet<&str> = section.split('`').skip(1).step_by(2).filter(is_name).collect();
    let missing: Vec<_> = known.difference(&named).collect();
    let unknown: Vec<_> = named.difference(&known).collect();
    assert!(missing.is_empty() && unknown.is_empty(), "the page lacks {missing:?}; a session has no {unknown:?}");
}

#[test]
fn no_function_of_datafusion_has_another_name_of_a_function_that_replaces_it() {
    let state = session().context().state();
    let functions = state.scalar_functions();
    let hidden: Vec<_> = functions
        .iter()
        .filter(|(_, function)| functions.get(function.name()).is_none_or(|known| known != *function))
        .map(|(name, function)| format!("{name}, which is {}", function.name()))
        .collect();
    assert!(hidden.is_empty(), "a session that is made anew may have {hidden:?} again");
}

#[tokio::test]
async fn what_the_page_on_sql_calls_accepted_runs_and_what_it_calls_refused_fails_as_it_says() {
    let (engine, guard) = engine_and_guard();
    let mut session = session_of(&engine, &guard, "ann");
    let mut wrong = Vec::new();
    let (accepted, refused) = (lines_of("accepted"), lines_of("refused"));
    assert!(!accepted.is_empty() && refused.len() > 20, "the blocks are there");
    for statement in accepted {
        if let Err(error) = try_run(&mut session, statement, &[]).await {
            wrong.push(format!("{statement}\n  is refused: {} {error}", error.code()));
        }
    }
    for line in refused {
        let Some((statement, code)) = line.rsplit_once(" -- ") else {
            wrong.push(format!("{line}\n  has no SQLSTATE"));
            continue;
        };
        match try_run(&mut session, statement, &[]).await {
            Err(error) if error.code() == code.trim() => {}
            Err(error) => wrong.push(format!("{statement}\n  is refused with {}: {error}", error.code())),
            Ok(answer) => wrong.push(format!("{statement}\n  is accepted: {answer}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
