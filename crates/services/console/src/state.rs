//! [`ConsoleState`]: what all requests of the console share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use node::identity::{AccessPort, Action, Caller, Object, Visit};
use node::{NoPlace, RolePlace, RolePlaces};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use crate::admin::{Admin, AdminError};
use crate::options::ConsoleOptions;
use crate::resends::ResendKeys;
use crate::sessions::SessionTable;
use crate::sign_in_places::SignInPlaces;
use crate::ticker::Snapshot;

/// Passwords that are checked at a time: each takes a processor for some 20 ms.
const CHECKS: usize = 2;

/// Requests that look at many messages, or wait for queues, for seconds, and run at a time: of all, and of one role.
const LONG_REQUESTS: usize = 4;
const LONG_REQUESTS_OF_ROLE: usize = 2;

/// Runs that send the messages of a search: of all, and of one role.
const BULK_RUNS: usize = 4;
const BULK_RUNS_OF_ROLE: usize = 1;

/// Files of messages that are made at a time: of all, and of one role.
const EXPORTS: usize = 4;
const EXPORTS_OF_ROLE: usize = 2;

/// Files of messages that are taken in at a time: of all, and of one role. Each takes the memory of a file while it comes in.
const IMPORTS: usize = 4;
const IMPORTS_OF_ROLE: usize = 2;

/// Edited messages that come in at a time: of all, and of one role.
const EDITS: usize = 4;
const EDITS_OF_ROLE: usize = 2;

/// Pages whose pictures are read from the history at a time.
const PICTURES: usize = 2;

/// From where a connection comes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ConsolePeer {
    /// Its address.
    pub(crate) address: SocketAddr,
    /// Whether it is over TLS.
    pub(crate) tls: bool,
}

impl ConsolePeer {
    /// For the access rules.
    pub(crate) fn visit(self) -> Visit {
        Visit { port: AccessPort::Console, address: Some(self.address.ip()), tls: self.tls }
    }
}

/// See the module's text.
pub(crate) struct ConsoleState {
    pub(crate) admin: Arc<dyn Admin>,
    pub(crate) options: ConsoleOptions,
    /// The port that it listens on: cookies of consoles on one machine must differ.
    pub(crate) port: u16,
    pub(crate) sessions: Mutex<SessionTable>,
    pub(crate) resends: Mutex<ResendKeys>,
    /// A place for each request that looks at many messages, or waits for queues.
    long: RolePlaces,
    /// A place for each run that sends the messages of a search.
    bulk_runs: RolePlaces,
    /// A place for each file of messages that is being made.
    exports: RolePlaces,
    /// A place for each file of messages that comes in.
    imports: RolePlaces,
    /// A place for each edited message that comes in.
    edits: RolePlaces,
    /// A place for each page whose pictures are read.
    pub(crate) pictures: Arc<Semaphore>,
    /// Held while a run looks whether a message was sent again before, and sends it: no two runs send the same one.
    pub(crate) bulk: tokio::sync::Mutex<()>,
    /// The newest figures; none before the first collection.
    pub(crate) snapshot: watch::Receiver<Option<Arc<Snapshot>>>,
    /// A place for each tab that is live.
    tabs: RolePlaces,
    /// A permit for each request that runs.
    pub(crate) requests: Semaphore,
    /// A place for each sign-in, ahead of the requests of those who are in.
    pub(crate) sign_ins: SignInPlaces,
    /// A permit for each password that is checked.
    pub(crate) checks: Semaphore,
    /// Set when the console stops: streams end.
    pub(crate) stop: watch::Receiver<bool>,
}

impl ConsoleState {
    pub(crate) fn new(
        admin: Arc<dyn Admin>,
        options: ConsoleOptions,
        port: u16,
        (snapshot, stop): (watch::Receiver<Option<Arc<Snapshot>>>, watch::Receiver<bool>),
    ) -> Arc<ConsoleState> {
        Arc::new(ConsoleState {
            admin,
            port,
            sessions: Mutex::default(),
            resends: Mutex::default(),
            bulk: tokio::sync::Mutex::default(),
            bulk_runs: RolePlaces::new(BULK_RUNS, BULK_RUNS_OF_ROLE),
            long: RolePlaces::new(LONG_REQUESTS, LONG_REQUESTS_OF_ROLE),
            exports: RolePlaces::new(EXPORTS, EXPORTS_OF_ROLE),
            imports: RolePlaces::new(IMPORTS, IMPORTS_OF_ROLE),
            edits: RolePlaces::new(EDITS, EDITS_OF_ROLE),
            pictures: Arc::new(Semaphore::new(PICTURES)),
            snapshot,
            // One visitor leaves half of them to others.
            tabs: RolePlaces::new(options.tabs_max, options.tabs_max.div_ceil(2)),
            requests: Semaphore::new(options.requests_max),
            sign_ins: SignInPlaces::default(),
            checks: Semaphore::new(CHECKS),
            stop,
            options,
        })
    }

    /// A place for a request that looks at many messages, or waits for queues: a few at a time, and fewer of one role, so that others
    /// get their turns.
    pub(crate) fn long_place(&self, caller: &Caller) -> Result<RolePlace, AdminError> {
        place(&self.long, caller, "long requests")
    }

    /// A place for a file of messages.
    pub(crate) fn export_place(&self, caller: &Caller) -> Result<RolePlace, AdminError> {
        place(&self.exports, caller, "files of messages")
    }

    /// A place for a file of messages that comes in.
    pub(crate) fn import_place(&self, caller: &Caller) -> Result<RolePlace, AdminError> {
        place(&self.imports, caller, "imports")
    }

    /// A place for an edited message that comes in.
    pub(crate) fn edit_place(&self, caller: &Caller) -> Result<RolePlace, AdminError> {
        place(&self.edits, caller, "edited messages")
    }

    /// A place for a tab that is live.
    pub(crate) fn tab_place(&self, caller: &Caller) -> Result<RolePlace, AdminError> {
        self.tabs.take(caller.session()).map_err(|none| {
            let (of, most) = match none {
                NoPlace::OfAll(all) => ("", all),
                NoPlace::OfRole(own) => (" of yours", own),
            };
            let what_to_do = "close some, or load the page again to see it as it is now";
            AdminError::Unavailable(format!("as many tabs{of} are live as may be ({most}): {what_to_do}"))
        })
    }

    /// A place for a run that sends the messages of a search.
    pub(crate) fn bulk_place(&self, caller: &Caller) -> Result<RolePlace, AdminError> {
        place(&self.bulk_runs, caller, "runs that send again")
    }

    /// Milliseconds by a clock that never goes back.
    pub(crate) fn now_ms(&self) -> u64 {
        u64::try_from(node::clock::monotonic().as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether a caller may do something; nothing is recorded, since nothing is done.
    pub(crate) fn may(&self, caller: &Caller, action: Action, object: Object<'_>) -> bool {
        self.options.guard.may(caller, action, object).is_ok()
    }

    /// Whether a caller may do something to some object.
    pub(crate) fn may_some(&self, caller: &Caller, action: Action) -> bool {
        self.options.guard.view().may_some(caller, action).is_ok()
    }

    /// Whether a caller may see the figures of the node.
    pub(crate) fn sees_node(&self, caller: &Caller) -> bool {
        self.may(caller, Action::NodeStatus, Object::Node)
    }

    /// The newest figures; waits a moment for the first ones.
    pub(crate) async fn figures(&self) -> Option<Arc<Snapshot>> {
        let mut snapshot = self.snapshot.clone();
        let found = tokio::time::timeout(Duration::from_secs(3), snapshot.wait_for(Option::is_some)).await;
        found.ok()?.ok()?.clone()
    }
}

fn place(places: &RolePlaces, caller: &Caller, what: &str) -> Result<RolePlace, AdminError> {
    places.take(caller.session()).map_err(|none| {
        AdminError::Unavailable(match none {
            NoPlace::OfAll(all) => format!("{what} of others take all places ({all}): try again in a moment"),
            NoPlace::OfRole(own) => {
                format!("as many {what} of yours are on as one may have ({own}): wait until one has ended")
            }
        })
    })
}
