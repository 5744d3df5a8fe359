//! The node's log lines, and that they contain no patient data.

use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span;
use tracing::{Event, Metadata, Subscriber};

use crate::receiver::{Receiver, ack};
use crate::rig::{Rig, adt, until};

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
    /// The first line that contains all of `words`.
    pub(crate) fn find(&self, words: &[&str]) -> Option<String> {
        let lines = self.lines.lock().expect("nobody panics with it");
        lines.iter().find(|line| words.iter().all(|word| line.contains(word))).cloned()
    }
}

impl Log {
    /// How many lines contain all of `words`.
    pub(crate) fn count(&self, words: &[&str]) -> usize {
        let lines = self.lines.lock().expect("nobody panics with it");
        lines.iter().filter(|line| words.iter().all(|word| line.contains(word))).count()
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
        self.lines.lock().expect("nobody panics with it").push(text.0);
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, values: &span::Record<'_>) {
        let mut text = Text("record ".to_owned());
        values.record(&mut text);
        self.lines.lock().expect("nobody panics with it").push(text.0);
    }
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(format!("{} {} ", event.metadata().level(), event.metadata().target()));
        event.record(&mut text);
        self.lines.lock().expect("nobody panics with it").push(text.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

/// A name that nothing else in these tests has.
const MARKER: &str = "ZQXVATIENT";

#[tokio::test(flavor = "multi_thread")]
async fn no_log_line_of_any_level_carries_what_a_message_holds() {
    let log = listen();
    let mut out = Receiver::start().await;
    let rig = Rig::to(out.address);
    let settings = "ack_timeout = \"40ms\"\n[reply]\nAE = \"warn\"\nAR = \"suspend\"\ntimeout = \"fail\"\nunreadable = \"fail\"\nwrong-id = \"fail\"\n";
    rig.service("in", "[intake]\nmessage_bytes = \"8KiB\"\nduplicates = \"drop\"\n")
        .operation("out", out.address, settings)
        .write("services/files.toml", "kind = \"file\"\nfolder = \"inbox\"\nrules = \"main\"\nevery = \"2ms\"\nsettle = \"0ms\"\n")
        .write("rules/main.rules", "match first\nrule r when MSH-9.2 = \"A02\" { reject \"no\" }\nrule b when MSH-9.2 = \"A03\" { send to out using bad }\nrule g { send to out using good }\n")
        .write("transforms/bad.hl7t", "set PID-7 = date(PID-5.1, 'yyyyMMdd', 'yyyy')\nset ZZZ-1 = PID-5\n")
        .write("transforms/good.hl7t", "set PID-5.2 = upper(PID-5.1)\n");
    let running = rig.start().await;
    let marked = |id: &str| adt(id).replace("SAMPLE", MARKER);
    let mut sender = running.sender().await;
    for id in ["1", "2", "3", "4", "5", "1"] {
        sender.accepted(&marked(id)).await;
    }
    for event in ["A02", "A03"] {
        sender.exchange(&marked(event).replace("A01", event)).await;
    }
    sender.exchange(&format!("{}NTE|1||{}\r", marked("large"), MARKER.repeat(2_000))).await;
    sender.exchange(&format!("PID|1||{MARKER}\r")).await;
    sender.write(format!("{MARKER} between frames\r").as_bytes()).await;
    sender.write(format!("\x0b{}", marked("half")).as_bytes()).await;
    sender.exchange(&marked("6").replace("|P|2.5", &format!("|{MARKER}|{MARKER}"))).await;
    sender.write(format!("\x0bMSH|{MARKER}").as_bytes()).await;
    drop(sender);
    rig.write("inbox/bad.hl7", &format!("PID|1||{MARKER}\r"))
        .write("inbox/batch.hl7", &format!("{}BTS|9|{MARKER}\r", marked("7")));
    out.next_is("1").await.answer("AE");
    out.next_is("2").await.write(&ack("AA", MARKER));
    out.next_is("3").await.write(format!("{MARKER} without a frame ...").as_bytes());
    let silent = out.next_is("4").await;
    out.closed(silent.connection).await;
    out.next_is("5").await.write(&ack(&format!("A{MARKER}"), "5"));
    out.next_is("6").await.answer("AR");
    until("it is suspended", || running.is_suspended("out").then_some(())).await;
    until("the files are taken", || log.find(&["bad.hl7"])).await;
    assert!(running.request(&format!("resend {MARKER}")).await.is_err());
    running.stop().await;
    let lines = log.lines.lock().expect("nobody panics with it").clone();
    assert!(lines.iter().any(|line| line.contains("suspended")), "the log was listened to");
    let told: Vec<&String> = lines.iter().filter(|line| line.contains(MARKER)).collect();
    assert!(told.is_empty(), "{told:#?}");
}
