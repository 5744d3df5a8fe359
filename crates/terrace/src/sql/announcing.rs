//! Tells sessions of SQL that listen to `hl7:TYPE` of new messages, once the tables show them.
//!
//! ```text
//!   message log --ids--> Arrivals: a bounded ring --read: service, type--> Engine --by rights--> mailboxes of sessions
//! ```
//!
//! Nothing of this happens while nobody listens, and the flow of messages never waits for it. It works a part of the time only: what comes
//! meanwhile is read together, and what the ring has no room for is told as a gap.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hl7::Path;
use hl7::mask::Masker;
use interop::arrivals::{self, Arrivals, Arrived, ArrivedIds};
use interop::message_log::MessageLog;
use sql::Engine;
use sql::engine::{MessageSource, NewMessage};
use store::Store;

/// For so long is gathered what is read together.
const GATHER: Duration = Duration::from_millis(20);

/// How often it is looked whether somebody still listens.
const LOOK: Duration = Duration::from_secs(1);

/// Messages that are read together.
const TOGETHER: usize = 256;

/// For so many times of what it has worked it rests: it takes a fifth of a processor at most.
const REST: u32 = 4;

/// Whether the type of a message is masked for readers without `unmasked`.
pub(super) fn is_type_masked(masker: &Masker) -> bool {
    let covers = |path: &str| path.parse::<Path>().is_ok_and(|path| masker.covers(&path));
    ["MSH-9", "MSH-9.1", "MSH-9.2"].into_iter().any(covers)
}

/// Watches the message log while sessions listen.
#[derive(Debug)]
pub(super) struct Announcing {
    message_log: Arc<MessageLog>,
    /// `None` while nobody listens.
    open: Mutex<Option<Arc<Arrivals>>>,
}

impl MessageSource for Announcing {
    fn open(&self) {
        self.watch();
    }
}

impl Announcing {
    pub(super) fn new(message_log: Arc<MessageLog>) -> Announcing {
        Announcing { message_log, open: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Arrivals>>> {
        // What panicked while it was held left a whole value.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watch(&self) -> Arc<Arrivals> {
        Arc::clone(self.lock().get_or_insert_with(|| Arc::new(Arrivals::watch(&self.message_log))))
    }

    /// Sends what comes for as long as it runs.
    pub(super) async fn run(self: Arc<Self>, engine: Arc<Engine>, is_masked: bool) {
        loop {
            engine.until_messages_are_wanted().await;
            let arrivals = self.watch();
            while engine.are_messages_wanted() {
                tokio::select! {
                    () = arrivals.news() => {}
                    () = tokio::time::sleep(LOOK) => continue,
                }
                tokio::time::sleep(GATHER).await;
                if self.announce(&engine, arrivals.take(), is_masked).await.is_break() {
                    return;
                }
            }
            // One that begins to listen now opens it again behind this.
            let mut open = self.lock();
            if !engine.are_messages_wanted() {
                *open = None;
            }
        }
    }

    /// Sends what has come. Breaks where the store has failed or is closed: nothing comes any more.
    async fn announce(&self, engine: &Arc<Engine>, arrived: ArrivedIds, is_masked: bool) -> ControlFlow<()> {
        for ids in arrived.ids.chunks(TOGETHER) {
            let (store, engine, ids) = (self.message_log.store().clone(), Arc::clone(engine), ids.to_vec());
            match tokio::task::spawn_blocking(move || send(&store, &engine, &ids, is_masked)).await {
                Ok(Some(worked)) => tokio::time::sleep(worked.saturating_mul(REST)).await,
                Ok(None) | Err(_) => return ControlFlow::Break(()),
            }
        }
        if arrived.left_out {
            engine.send_gap();
        }
        ControlFlow::Continue(())
    }
}

/// Reads messages and tells of them; how long that took. None where they cannot be read.
fn send(store: &Store, engine: &Engine, ids: &[u64], is_masked: bool) -> Option<Duration> {
    // Their rows may be a moment behind; that wait is no work.
    arrivals::wait_visible(store, ids).ok()?;
    let began = Instant::now();
    let found = arrivals::read(store, ids).ok()?;
    let message = |Arrived { id, service, kind }| NewMessage { id, service, kind };
    engine.send_messages(&found.into_iter().map(message).collect::<Vec<_>>(), is_masked);
    Some(began.elapsed())
}

#[cfg(test)]
mod tests {
    use super::super::walk::tests::stored_of;
    use super::*;

    #[test]
    fn of_new_messages_there_are_the_service_and_the_type_and_what_has_none_is_left_out() {
        let message = |kind: &str| format!("MSH|^~\\&|A|B|||1||{kind}|C1|P|2.5\r").into_bytes();
        let (store, ids) = stored_of(vec![message("ADT^A01"), message("ORU^R01^ORU_R01"), b"no message".to_vec()]);
        let gone = ids[2] + 1_000;
        let found = arrivals::read(&store, &[ids[0], ids[1], ids[2], gone]).expect("it reads");
        let arrived = |id, service: &str, kind: &str| Arrived { id, service: service.into(), kind: kind.into() };
        assert_eq!(found, [arrived(ids[0], "lab", "ADT^A01"), arrived(ids[1], "ward", "ORU^R01")]);
    }
}
