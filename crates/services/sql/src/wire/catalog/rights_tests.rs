//! What the catalogs show of roles and rights, and of comments, to several users: `rights_tests.txt` and `comments_tests.txt` have the
//! statements and what is expected.
//!
//! ```text
//!   @ann               who sends the statements that follow; a session is opened when it is first named
//!   # ..               a comment
//!   select 1           a statement, in one line
//!   = 1                a row of its result, or its tag
//!   ! 42501            its SQLSTATE
//! ```
//!
//! At the begin there is the administrator `ann`, whose number is 16384.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use futures::TryStreamExt;
use node::Clock;
use node::identity::scram::Mock;
use node::identity::{Attributes, Caller, Credentials, Guard, IdentityChange, Role};
use store::{Options, Store};

use super::Catalogs;
use super::backends::Backends;
use crate::{Engine, EngineOptions, Session, SqlError, StatementResult};

const SCRIPT: &str = include_str!("rights_tests.txt");
const COMMENTS: &str = include_str!("comments_tests.txt");

/// A session with its catalogs.
struct Player {
    session: Session,
    catalogs: Catalogs,
}

impl Player {
    fn new(engine: &Arc<Engine>, guard: &Arc<Guard>, user: &str) -> Player {
        let caller = guard.trusted(user, [127, 0, 0, 1].into()).expect("it may log in");
        let session = engine.session_of(Arc::clone(guard), caller).expect("its role is there");
        let backends = Backends::new(Arc::default(), Arc::clone(engine), (1, "terrace".into()));
        Player { session, catalogs: Catalogs { backends, installed: false } }
    }

    async fn play(&mut self, sql: &str) -> Result<Vec<String>, SqlError> {
        let rewritten = self.catalogs.rewrite(&self.session, sql)?.into_owned();
        let mut lines = Vec::new();
        for prepared in self.session.prepare(&rewritten, &[]).await? {
            match self.session.execute(&prepared, &[]).await? {
                StatementResult::Done { tag } => lines.push(tag),
                StatementResult::Rows { stream, .. } => {
                    let batches: Vec<_> = stream.try_collect().await?;
                    let options = FormatOptions::default().with_null("NULL");
                    for batch in batches {
                        let columns: Vec<_> = batch
                            .columns()
                            .iter()
                            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).expect("it is shown"))
                            .collect();
                        for row in 0..batch.num_rows() {
                            let cells: Vec<String> = columns
                                .iter()
                                .map(|column| column.value(row).to_string().replace('\n', "\\n"))
                                .collect();
                            lines.push(cells.join("|"));
                        }
                    }
                }
                other => lines.push(format!("{other:?}")),
            }
        }
        Ok(lines)
    }
}

#[tokio::test]
async fn the_catalogs_show_roles_and_rights_as_postgresqls_do() {
    plays(SCRIPT).await;
}

#[tokio::test]
async fn owners_comment_on_their_objects_and_comments_go_with_these() {
    plays(COMMENTS).await;
}

/// Runs a script, and compares all results with those in it.
async fn plays(script: &str) {
    let store = Store::in_memory(Options::default()).expect("memory is enough");
    let guard = Guard::open(store.clone(), Clock::fixed(1), Mock::of([7; 32])).expect("it opens");
    let attributes = Attributes { administrator: true, ..Attributes::user() };
    let role = Role { name: "ann".into(), attributes, credentials: Credentials::default() };
    guard.change(&Caller::node(), &[IdentityChange::Create(role)]).expect("the node may");
    let engine = Engine::new(store, EngineOptions { threads: 1, ..EngineOptions::default() }).expect("it starts");
    let mut players: HashMap<&str, Player> = HashMap::new();
    let (mut user, mut wrong) = ("", Vec::new());
    let mut lines = script.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).peekable();
    while let Some(line) = lines.next() {
        if let Some(name) = line.strip_prefix('@') {
            user = name;
            players.entry(user).or_insert_with(|| Player::new(&engine, &guard, user));
            continue;
        }
        let mut expected: Vec<&str> = Vec::new();
        while let Some(next) = lines.next_if(|next| next.starts_with(['=', '!'])) {
            expected.push(next);
        }
        let player = players.get_mut(user).expect("a user comes first");
        let found: Vec<String> = match player.play(line).await {
            Ok(lines) => lines.into_iter().map(|line| format!("= {line}")).collect(),
            Err(error) => vec![format!("! {}", error.code())],
        };
        if found.iter().map(|line| line.trim_end()).ne(expected.iter().map(|line| line.trim_end())) {
            wrong.push(format!("@{user} {line}\n  {}", found.join("\n  ")));
        }
    }
    assert!(wrong.is_empty(), "{} statements:\n{}", wrong.len(), wrong.join("\n"));
}
