//! The test of the crash tests: a machine that leaves out one flush, write-back, fence or sync of the write image
//! journal or of the pages, each in turn. Some image must reveal it, or a rule must state why that one is redundant.

use device::Operation;
use device::crash::{Instruction, Persist, Step};

use super::crash::{enumerate, live};
use super::toy::{History, media, seed};

/// The purpose of a write, derived from its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// A write of the journal, which has mutation checks of its own.
    Other,
    /// A write to a data device that has no name yet.
    Making,
    /// Images and pages.
    Bulk,
    /// Commit or invalidate.
    Mark,
}

fn part(step: &Step) -> Part {
    let text = step.to_string();
    let range = text.rsplit(' ').next().unwrap_or_default();
    let offset: u64 = range.split('+').next().and_then(|offset| offset.parse().ok()).unwrap_or_default();
    match step.name() {
        "images-0000" if offset < 8192 => Part::Mark,
        name if name.starts_with("pages-") || name.starts_with("images-") => Part::Bulk,
        name if name.starts_with("making-") => Part::Making,
        _ => Part::Other,
    }
}

/// Whether the fence of the next write is sufficient: it comes before everything that must come after this one.
fn is_followed(persist: &Persist, trace: &[Step]) -> bool {
    let is_write = |step: &&Step| matches!(step.operation(), Operation::Write | Operation::Rename);
    let before = trace[..persist.step].iter().rfind(is_write);
    let behind = trace[persist.step..].iter().find(is_write);
    let (Some(before), Some(behind)) = (before, behind) else { return false };
    match (part(before), part(behind)) {
        _ if behind.operation() == Operation::Rename && part(behind) == Part::Making => false,
        (_, Part::Other) => true,
        // Invalidating: writes after that fence overwrite the table that a committed batch would need; its images are
        // in place.
        (Part::Mark, Part::Bulk) => marks_ahead(persist, trace).is_multiple_of(2),
        (before, behind) => before == behind && before != Part::Mark,
    }
}

/// How many marks were written: committed, invalidated, committed ...
fn marks_ahead(persist: &Persist, trace: &[Step]) -> usize {
    let is_mark = |step: &&Step| step.operation() == Operation::Write && part(step) == Part::Mark;
    trace[..persist.step].iter().filter(is_mark).count()
}

/// Why leaving one out does no harm, if it does none. `invalidate` is the last write to the write image journal;
/// `reopen` is the first flush of the data device by the opening that restores a batch.
fn redundant(
    life: &History,
    persist: &Persist,
    trace: &[Step],
    clear: usize,
    reopen: Option<usize>,
) -> Option<&'static str> {
    if persist.atoms == 0 {
        return Some("there was nothing left to make persistent");
    }
    if Some(persist.step) == reopen {
        return Some("what a killed process had written in place is written again from the batch");
    }
    if life.dropped.contains(&persist.step) {
        return Some("a checkpoint that is never committed has nothing that must be persistent");
    }
    if persist.instruction == Instruction::Fence && is_followed(persist, trace) {
        return Some("a fence waits for all earlier writes of its thread, and the next one is early enough");
    }
    (persist.step >= clear).then_some("the last invalid mark guards a batch that nobody overwrites")
}

#[test]
fn each_flush_and_fence_of_a_checkpoint_left_out_is_noticed_or_known_to_be_redundant() {
    let seed = seed(23);
    // Whole blocks bypass the cache, so eADR and ADR give the same recording.
    for (name, medium) in media().into_iter().filter(|(name, _)| *name != "eADR") {
        let shelf = medium(seed);
        let life = live(&shelf);
        let (persists, trace) = (shelf.persists(), shelf.trace());
        let is_ours = |step: usize| {
            let device = trace[step].name();
            device.starts_with("pages-") || device.starts_with("images-") || device.starts_with("making-")
        };
        let is_clear =
            |step: &usize| trace[*step].name() == "images-0000" && trace[*step].operation() == Operation::Write;
        let last_clear = (0..trace.len()).rev().find(is_clear).expect("batches were invalidated");
        let is_written_back =
            |persist: &&Persist| persist.step >= life.restoring && trace[persist.step].name() == "pages-0000";
        let reopen = persists.iter().find(is_written_back).map(|persist| persist.step);
        let (mut noticed, mut known) = (0, 0);
        for (nth, persist) in persists.iter().enumerate().filter(|(_, persist)| is_ours(persist.step)) {
            let shelf = medium(seed);
            shelf.omit(nth);
            let history = live(&shelf);
            let found = enumerate(&shelf, &history, persist.step, &mut |_, _| ());
            match (found, redundant(&life, persist, &trace, last_clear, reopen)) {
                (Err(_), None) => noticed += 1,
                (Ok(_), Some(_)) => known += 1,
                (Err(why), Some(rule)) => panic!("{name}: {nth} {persist:?} is needed although {rule}: {why}"),
                (Ok(_), None) => {
                    let around = &trace[persist.step.saturating_sub(4)..trace.len().min(persist.step + 4)];
                    let around: Vec<String> = around.iter().map(ToString::to_string).collect();
                    panic!("{name}: no image reveals that {nth} is left out: {persist:?} among {around:#?}")
                }
            }
        }
        println!("{name}: {noticed} noticed, {known} redundant");
        assert!(noticed >= 12, "{name}: only {noticed} noticed");
    }
}
