//! [`Activity`]: what a connection is doing, as `pg_stat_activity` shows it.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};

use chrono::{DateTime, Utc};
use node::OpenConnection;
use node::connections::ConnectionActivity;
use parking_lot::Mutex;

use crate::SessionState;
use crate::engine::parse::rights::shown::without_passwords;

/// Bytes of a statement that are shown, as PostgreSQL's `track_activity_query_size`.
const QUERY_BYTES: usize = 1024;

/// The shown facts of a connection.
#[derive(Debug, Clone)]
pub(super) struct Doing {
    pub(super) user: String,
    pub(super) application: String,
    /// The number of its session.
    pub(super) session: u64,
    pub(super) peer: SocketAddr,
    pub(super) connected: DateTime<Utc>,
    /// The time when the open transaction began.
    pub(super) transaction: Option<DateTime<Utc>>,
    /// The time when the running or last statement began.
    pub(super) query_began: Option<DateTime<Utc>>,
    pub(super) state_began: DateTime<Utc>,
    pub(super) state: &'static str,
    /// The running or last statement.
    pub(super) query: String,
}

/// The present activity of one connection.
#[derive(Debug)]
pub(super) struct Activity {
    doing: Mutex<Doing>,
    /// Where statements are counted. That owns this, and is not owned by it: both end with the session.
    connection: OnceLock<Weak<OpenConnection>>,
}

impl ConnectionActivity for Activity {
    fn doing(&self) -> (&'static str, String) {
        let doing = self.doing.lock();
        (doing.state, doing.query.clone())
    }
}

impl Activity {
    /// The activity of a connection that has just logged in.
    pub(super) fn new((user, session): (&str, u64), application: &str, peer: SocketAddr) -> Activity {
        let now = Utc::now();
        let doing = Mutex::new(Doing {
            user: user.to_owned(),
            application: application.to_owned(),
            session,
            peer,
            connected: now,
            transaction: None,
            query_began: None,
            state_began: now,
            state: "idle",
            query: String::new(),
        });
        Activity { doing, connection: OnceLock::new() }
    }

    /// From now on its statements count for this connection.
    pub(super) fn counts_for(&self, connection: &Arc<OpenConnection>) {
        // It has one already.
        let _ = self.connection.set(Arc::downgrade(connection));
    }

    /// Records that a statement begins.
    pub(super) fn begins(&self, sql: &str) {
        let now = Utc::now();
        let shown = without_passwords(&sql[..sql.floor_char_boundary(QUERY_BYTES)]);
        if let Some(connection) = self.connection.get().and_then(Weak::upgrade) {
            connection.began(1);
        }
        let mut doing = self.doing.lock();
        doing.query.clear();
        doing.query.push_str(&shown);
        doing.query_began = Some(now);
        doing.transaction.get_or_insert(now);
        (doing.state, doing.state_began) = ("active", now);
    }

    /// Records that the session waits for its client; `application` is the session's `application_name`.
    pub(super) fn waits(&self, state: SessionState, application: &str) {
        let mut doing = self.doing.lock();
        if doing.application != application {
            doing.application = application.to_owned();
        }
        doing.state_began = Utc::now();
        doing.state = match state {
            SessionState::Idle => "idle",
            SessionState::InTransaction => "idle in transaction",
            SessionState::Failed => "idle in transaction (aborted)",
        };
        if state == SessionState::Idle {
            doing.transaction = None;
        }
    }

    /// The present activity.
    pub(super) fn now(&self) -> Doing {
        self.doing.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use node::ConnectionRegistry;

    use super::*;

    #[test]
    fn a_session_that_is_over_leaves_neither_its_statement_nor_its_connection_in_memory() {
        let registry = Arc::new(ConnectionRegistry::default());
        let (socket, _other) = UnixStream::pair().expect("two sockets");
        let place = registry.outgoing(("sql", "sql"), "a client", &socket);
        let activity = Arc::new(Activity::new(("ann", 1), "psql", SocketAddr::from(([127, 0, 0, 1], 1))));
        activity.counts_for(place.connection());
        place.connection().does(Arc::clone(&activity) as Arc<dyn ConnectionActivity>);
        activity.begins("SELECT 4711");
        let (connection, doing) = (Arc::downgrade(place.connection()), Arc::downgrade(&activity));
        drop(activity);
        assert!(doing.upgrade().is_some_and(|doing| doing.now().query == "SELECT 4711"), "it is listed");
        drop(place);
        assert!(connection.upgrade().is_none() && doing.upgrade().is_none());
    }
}
