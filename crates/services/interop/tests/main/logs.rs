//! What the node says in its log, and that no patient is in it.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Metadata, Subscriber};

/// Lines of this process, of every level.
#[derive(Clone, Default)]
pub(crate) struct Log {
    lines: Arc<Mutex<Vec<String>>>,
}

/// Listens from the first call on, to all nodes of this process.
pub(crate) fn listen() -> Log {
    static LOG: OnceLock<Log> = OnceLock::new();
    let log = LOG.get_or_init(|| {
        let log = Log::default();
        tracing::subscriber::set_global_default(log.clone()).expect("no other test listens");
        log
    });
    log.clone()
}

impl Log {
    /// The first line that contains `what`.
    pub(crate) fn find(&self, what: &str) -> Option<String> {
        self.lines.lock().unwrap().iter().find(|line| line.contains(what)).cloned()
    }
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let mut text = Text(format!("span {} ", attributes.metadata().name()));
        attributes.record(&mut text);
        self.lines.lock().unwrap().push(text.0);
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        let mut text = Text("record ".to_owned());
        values.record(&mut text);
        self.lines.lock().unwrap().push(text.0);
    }
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(format!("{} {} ", event.metadata().level(), event.metadata().target()));
        event.record(&mut text);
        self.lines.lock().unwrap().push(text.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}
