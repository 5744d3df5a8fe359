//! Statements about roles and rights, played by several users: `rights.txt` has the statements and what is expected.
//!
//! ```text
//!   @ann               who sends the statements that follow; a session is opened when it is first named
//!   @@ann              the same in a new session
//!   # ..               a comment
//!   create role bob    a statement, in one line
//!   = CREATE ROLE      its tag, or a row of its result
//!   ! 42501 text       its error, and how the text of it begins
//! ```
//!
//! At the begin there is the administrator `ann`.

use std::collections::HashMap;
use std::sync::Arc;

use node::Clock;
use node::identity::scram::Mock;
use node::identity::{Attributes, Caller, Credentials, Guard, IdentityChange, Role};
use sql::{Engine, EngineOptions, Session};
use store::{Options, Store};

use crate::support::try_run;

const SCRIPT: &str = include_str!("rights.txt");

/// An engine, and a guard with the administrator `ann`.
pub(crate) fn engine_and_guard() -> (Arc<Engine>, Arc<Guard>) {
    let store = Store::in_memory(Options::default()).expect("memory is enough");
    let guard = Guard::open(store.clone(), Clock::fixed(1), Mock::of([7; 32])).expect("it opens");
    let attributes = Attributes { administrator: true, ..Attributes::user() };
    let mut credentials = Credentials::default();
    credentials.set_password("ann", "a long password").expect("it is allowed");
    let role = Role { name: "ann".into(), attributes, credentials };
    guard.change(&Caller::node(), &[IdentityChange::Create(role)]).expect("the node may");
    let engine = Engine::new(store, EngineOptions { threads: 2, ..EngineOptions::default() }).expect("it starts");
    (engine, guard)
}

/// A session of a user of this machine.
pub(crate) fn session_of(engine: &Arc<Engine>, guard: &Arc<Guard>, user: &str) -> Session {
    let caller = guard.trusted(user, [127, 0, 0, 1].into()).expect("it may log in");
    engine.session_of(Arc::clone(guard), caller).expect("its role is there")
}

#[tokio::test]
async fn statements_about_rights_do_what_postgresql_does() {
    let (engine, guard) = engine_and_guard();
    let mut sessions: HashMap<&str, Session> = HashMap::new();
    let (mut user, mut wrong) = ("", Vec::new());
    let mut lines = SCRIPT.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix('@') {
            user = name.trim_start_matches('@');
            if name.starts_with('@') || !sessions.contains_key(user) {
                sessions.insert(user, session_of(&engine, &guard, user));
            }
            continue;
        }
        let mut expected: Vec<&str> = Vec::new();
        while let Some(next) = lines.next_if(|next| next.starts_with(['=', '!'])) {
            expected.push(next);
        }
        let session = sessions.get_mut(user).expect("a user comes first");
        let found: Vec<String> = match try_run(session, line, &[]).await {
            Ok(text) => text.lines().map(|line| format!("= {line}")).collect(),
            Err(error) => vec![format!("! {} {error}", error.code())],
        };
        let is_expected = found.len() == expected.len()
            && found.iter().zip(&expected).all(|(found, expected)| match expected.starts_with('!') {
                true => found.starts_with(expected),
                false => found == expected,
            });
        if !is_expected {
            wrong.push(format!("@{user} {line}\n  {}", found.join("\n  ")));
        }
    }
    assert!(wrong.is_empty(), "{} statements:\n{}", wrong.len(), wrong.join("\n"));
}
