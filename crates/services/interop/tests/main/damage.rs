//! Damaged pages below a node: whether it starts, its reports, the work that continues, and the repair.
//!
//! One node is filled and stopped; each case damages a copy of its data.

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use interop::InteropError;
use interop::history::Filter;
use interop::repair::{self, Repaired};
use interop::rows::{TREES, interpreter};
use interop::running::RunningProduction;
use node::NodeFolder;
use store::StoreError;

use crate::receiver::Accepting;
use crate::rig::{Rig, keyed, until};

/// Size of a page of a node.
const PAGE: usize = 8192;

/// Messages that are delivered.
const DELIVERED: usize = 40;

/// A part that only one of them has: a body that lies in pages of its own.
const MARK: &str = "THE-LONG-ONE";

/// Messages, of which the last three wait for an operation that is suspended; closed, and the folder of a backup of it.
async fn filled(rig: &mut Rig) -> PathBuf {
    rig.options.store.keep_journal_bytes = 64 << 20;
    let running = rig.start_on_files().await;
    let mut sender = running.sender().await;
    for at in 0..DELIVERED {
        let long = if at == 7 { format!("NTE|1||{}\r", MARK.repeat(1000)) } else { format!("NTE|1||{at}\r") };
        sender.accepted(&format!("{}{long}", keyed(&format!("m{at}"), &at.to_string()))).await;
    }
    running.idle("out").await;
    running.until_outcomes(DELIVERED).await;
    running.request("suspend out").await.expect("it is suspended");
    for at in 0..3 {
        sender.accepted(&keyed(&format!("w{at}"), "9")).await;
    }
    let backup = rig.data().with_file_name("backup");
    let to = backup.clone();
    let kept = NodeFolder::Running(rig.data().to_owned());
    let made =
        tokio::task::spawn_blocking(move || kept.back_up(&to, interpreter(), &mut |_| ControlFlow::Continue(())));
    made.await.expect("it does not panic").expect("it is backed up");
    running.stop().await;
    backup
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("it lists") {
        let path = entry.expect("it lists").path();
        let target = to.join(path.file_name().expect("it has a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else if path.extension().is_none_or(|extension| extension != "sock") && path.is_file() {
            fs::copy(&path, &target).expect("it copies");
        }
    }
}

/// Changes every page of the data devices that `is_one` names; how many.
fn damage(data: &Path, is_one: impl Fn(&[u8]) -> bool) -> usize {
    let mut damaged = 0;
    for entry in fs::read_dir(data.join("pages")).expect("it lists") {
        let path = entry.expect("it lists").path();
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("pages-")) {
            continue;
        }
        let mut bytes = fs::read(&path).expect("it reads");
        for page in bytes.chunks_exact_mut(PAGE).filter(|page| is_one(page)) {
            page[PAGE / 2] ^= 4;
            damaged += 1;
        }
        fs::write(&path, bytes).expect("it writes");
    }
    damaged
}

async fn repaired(data: &Path, backup: Option<&Path>, apply: bool) -> Repaired {
    let (data, backup) = (data.to_owned(), backup.map(Path::to_owned));
    let work = move || repair::repair(&data, backup.as_deref(), apply, &|_, _| Ok(Vec::new()), &mut |_| ());
    tokio::task::spawn_blocking(work).await.expect("it does not panic").expect("it is repaired")
}

#[tokio::test(flavor = "multi_thread")]
async fn one_damaged_body_of_a_delivered_message_stops_nothing_and_each_read_of_it_names_it() {
    let out = Accepting::start().await;
    let mut rig = Rig::to(out.address);
    filled(&mut rig).await;
    let is_body = |page: &[u8]| page.windows(MARK.len() * 2).any(|part| part == MARK.repeat(2).as_bytes());
    assert!(damage(rig.data(), is_body) > 0, "the body lies in pages of its own");

    let running = rig.start_on_files().await;
    running.request("resume out").await.expect("it goes on");
    running.sender().await.accepted(&keyed("new", "1")).await;
    assert_eq!(&out.received(DELIVERED + 4).await[DELIVERED..], ["w0", "w1", "w2", "new"]);
    running.idle("out").await;
    let history = rig.history();
    let lines = tokio::task::spawn_blocking(move || (history.list(&Filter::default()), history));
    let (lines, history) = lines.await.expect("it does not panic");
    let lines = lines.expect("the others are listed");
    let damaged: Vec<_> = lines.iter().filter_map(|line| Some((line.id, line.damaged.clone()?))).collect();
    assert_eq!((lines.len(), damaged.len()), (DELIVERED + 4, 1), "{damaged:?}");
    let (id, why) = damaged[0].clone();
    assert!(why.contains("tree hl7.messages") && why.contains("pages-") && why.contains("key"), "{why}");
    let shown = tokio::task::spawn_blocking(move || history.show(id)).await.expect("it does not panic");
    assert!(shown.expect_err("it is damaged").to_string().contains("tree hl7.messages"));
    let status = running.status();
    assert_eq!(status.quarantined.len(), 1, "{:?}", status.quarantined);
    assert!(status.store.pages_quarantined > 0 && status.store.frozen.is_none());

    // The other old messages are removed nevertheless.
    until("all others are done", || running.reader().pending().expect("it reads").is_empty().then_some(())).await;
    running.node.prune(true).await.expect("it goes on");
    assert_eq!(running.ids(), [id]);
    let to = rig.data().with_file_name("another");
    let kept = NodeFolder::Running(rig.data().to_owned());
    let refused = tokio::task::spawn_blocking({
        let to = to.clone();
        move || kept.back_up(&to, interpreter(), &mut |_| ControlFlow::Continue(()))
    });
    let refused = refused.await.expect("it does not panic").expect_err("it could not be restored");
    assert!(refused.to_string().contains("there is no backup"), "{refused}");
    assert!(fs::read_dir(&to).expect("it lists").all(|entry| entry.expect("it lists").file_name() != "backup"));
    running.stop().await;

    let shown = repaired(rig.data(), None, false).await;
    assert_eq!(shown.given_up.iter().map(|lost| lost.message).collect::<Vec<_>>(), [Some(id)], "{shown:?}");
    assert!(shown.given_up[0].what.contains("control id m7"), "{shown:?}");
    let done = repaired(rig.data(), None, true).await;
    assert_eq!(Repaired { applied: false, ..done }, shown, "what was shown is what was done");
    assert!(shown.problems.is_empty(), "{shown:?}");
    let running = rig.start_on_files().await;
    running.sender().await.accepted(&keyed("after", "1")).await;
    running.stop().await;
}

/// The result for a node with one damaged page.
async fn start(rig: &Rig, case: &str) -> bool {
    match RunningProduction::start(rig.options.clone()).await {
        Ok(node) => {
            node.stop().await;
            true
        }
        Err(InteropError::AtStake { what, source }) => {
            let text = InteropError::AtStake { what, source }.to_string();
            assert!(text.contains("terrace repair"), "{case}: {text}");
            false
        }
        Err(InteropError::Store(StoreError::Corrupt(why))) => {
            assert!(why.contains("terrace repair"), "{case}: {why}");
            false
        }
        Err(error) => panic!("{case}: {error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_page_of_any_tree_is_gone_round_or_refused_by_name_and_repaired() {
    let out = Accepting::start().await;
    let mut rig = Rig::to(out.address);
    let backup = filled(&mut rig).await;
    let whole = rig.data().to_owned();
    let mut refused = Vec::new();
    for (tree, name) in (1_u32..).zip(TREES) {
        for kind in [4_u8, 3] {
            for with_backup in [false, true] {
                let case = format!("{name}, kind {kind}, backup: {with_backup}");
                let data = whole.with_file_name("case");
                copy(&whole, &data);
                let is_one = |page: &[u8]| page[4] == kind && page[8..12] == tree.to_le_bytes();
                if damage(&data, is_one) == 0 {
                    continue;
                }
                rig.options.data.clone_from(&data);
                if !start(&rig, &case).await {
                    refused.push(name);
                }
                let backup = with_backup.then_some(backup.as_path());
                let shown = repaired(&data, backup, false).await;
                let done = repaired(&data, backup, true).await;
                assert_eq!(shown.given_up, done.given_up, "{case}");
                assert!(done.problems.is_empty() && !shown.damaged.is_empty(), "{case}: {done:?}");
                let is_lost = kind == 4 && !with_backup && [TREES[0], "hl7.operations"].contains(&name);
                assert_eq!(!done.given_up.is_empty(), is_lost, "{case}: {:?}", done.given_up);
                let running = rig.start_on_files().await;
                let gone = done.given_up.iter().filter(|lost| lost.message.is_some()).count();
                assert_eq!(running.ids().len(), DELIVERED + 3 - gone, "{case}");
                let runs = is_lost && name == "hl7.operations";
                assert_eq!(running.is_suspended("out"), !runs, "{case}");
                if !runs {
                    let waits = 3 - done.given_up.iter().filter(|lost| lost.waited).count();
                    assert_eq!(running.reader().pending().expect("it reads").len(), waits, "{case}");
                }
                running.sender().await.accepted(&keyed("new", "1")).await;
                running.stop().await;
                fs::remove_dir_all(&data).expect("it goes");
            }
        }
    }
    refused.dedup();
    assert_eq!(refused, ["hl7.messages", "hl7.pending", "hl7.operations"], "only where something is at stake");
}
