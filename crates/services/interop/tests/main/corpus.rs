//! Public HL7 files, as frames: not part of the source, read where they are present.
//!
//! `TERRACE_CORPORA` names the folder that holds `hl7/`; by default it is looked for beside the checkout. Without it
//! the test passes and prints that.

use std::fs;
use std::path::{Path, PathBuf};

use hl7::ack::{self, Mode};
use hl7::batch::{self, BatchProblem, Kind};
use hl7::{Message, mllp};

use crate::receiver::Accepting;
use crate::rig::{Rig, adt};

fn gather(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("a folder can be listed").path();
        if path.is_dir() {
            gather(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "hl7") {
            paths.push(path);
        }
    }
}

/// The required result of a frame: messages stored, and the minimum of answers. No message in original mode goes
/// unanswered.
fn expected(raw: &[u8]) -> (usize, usize) {
    let batch = batch::split(raw);
    let is_batch = batch.parts.first().is_some_and(|part| matches!(part.kind, Kind::FileHeader | Kind::BatchHeader));
    let stray = batch.problems.iter().any(|problem| matches!(problem, BatchProblem::Stray { .. }));
    if batch.messages.is_empty() || (stray && (is_batch || batch.messages.len() == 1)) {
        return (1, 1);
    }
    let asks = |message: &[u8]| match Message::parse(message) {
        Ok(message) => !ack::is_acknowledgement(&message) && ack::mode(&message) == Mode::Original,
        Err(_) => true,
    };
    (batch.messages.len(), batch.messages.iter().filter(|range| asks(&raw[(*range).clone()])).count())
}

#[tokio::test(flavor = "multi_thread")]
async fn public_messages_are_each_stored_and_answered_however_many_a_frame_holds() {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../../shared/corpora");
    let root = std::env::var_os("TERRACE_CORPORA").map_or_else(default, PathBuf::from).join("hl7");
    let mut paths = Vec::new();
    gather(&root, &mut paths);
    paths.sort();
    if paths.is_empty() {
        return println!("skipped: corpus not present in {}", root.display());
    }
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.service("in", "[intake]\nduplicates = \"allow\"\n")
        .write("rules/main.rules", "match first\nrule all { drop \"seen\" }\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let (mut stored, mut several) = (0, 0);
    for (at, path) in paths.iter().enumerate() {
        let raw = fs::read(path).expect("a listed file can be read");
        if mllp::uncarriable(&raw).is_some() {
            continue;
        }
        let (messages, answers) = expected(&raw);
        let mut frame = Vec::new();
        mllp::encode(&raw, &mut frame);
        sender.write(&frame).await;
        sender.accepted_behind(&adt(&format!("end{at}")), answers, path).await;
        stored += messages + 1;
        several += usize::from(messages > 1);
        assert_eq!(running.status().stored, stored as u64, "{}", path.display());
    }
    println!("{} files, {several} of them with several messages, {stored} messages", paths.len());
    running.stop().await;
}
