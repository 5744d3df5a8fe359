//! A test of the crash tests. The simulated machine leaves out one flush, write-back, fence or sync, each of them in
//! turn. Some image of some point must show the fault, or a rule must explain why no image can show it.

use std::ops::Range;
use std::sync::Arc;

use device::crash::{Instruction, Persist, PmemMode, Step};
use device::{CrashShelf, Operation};
use journal::{Check, Journal, JournalError};

use crate::crash::{first_loss, several_threads};
use crate::support::{History, MEDIA, Medium, clear_and_encrypted, recover_checking, seed, small};

/// A workload with every operation that makes bytes persistent: opening, batches, a change of segment, a record of
/// several segments, truncation, a recycled segment, closing. A process is killed between write and flush twice, once
/// in a batch of records and once while opening. After that kill, the next opening makes the bytes persistent.
#[derive(Default)]
struct Life {
    history: History,
    /// The operations of each close.
    closings: Vec<Range<usize>>,
}

fn live(shelf: &Arc<CrashShelf>) -> Life {
    let mut life = Life::default();
    life.turn(shelf, &[900, 4000, 5000, 100, 12_000]);
    life.turn(shelf, &[10, 30_000, 3900, 2000, 6000]);
    life.killed_in_a_batch(shelf);
    life.turn(shelf, &[300, 6000]);
    killed_while_opening(shelf);
    life.turn(shelf, &[64, 8000, 8000, 500]);
    life
}

impl Life {
    fn open(&mut self, shelf: &Arc<CrashShelf>) -> Journal {
        let (journal, _) = Journal::open(shelf.clone(), small()).expect("opens");
        // Records that an opening returned count as acknowledged.
        self.history.acknowledge(shelf);
        journal
    }

    /// Opens, uses, truncates and closes a journal.
    fn turn(&mut self, shelf: &Arc<CrashShelf>, sizes: &[usize]) {
        let journal = self.open(shelf);
        for (step, bytes) in sizes.iter().enumerate() {
            if step % 2 == 1 {
                self.history.append_commit(&journal, shelf, *bytes);
                continue;
            }
            self.history.append(&journal, *bytes);
            if step == 2 {
                self.history.append(&journal, 700);
            }
            self.history.commit(&journal, shelf);
        }
        self.history.truncate(&journal, shelf, 2);
        self.history.append(&journal, 100);
        self.history.commit(&journal, shelf);
        let from = shelf.operations();
        journal.close().expect("closes");
        self.closings.push(from..shelf.operations());
    }

    fn killed_in_a_batch(&mut self, shelf: &Arc<CrashShelf>) {
        let journal = self.open(shelf);
        let lsn = self.history.append(&journal, 1500);
        shelf.kill_at(shelf.operations() + 1);
        assert!(matches!(journal.commit(lsn), Err(JournalError::Poisoned { .. })), "killed between write and flush");
        std::mem::forget(journal);
        shelf.restart();
    }
}

/// Kills a process after it has written its opening batch and before the flush.
fn killed_while_opening(shelf: &Arc<CrashShelf>) {
    // The number of operations is measured on an image that has everything that reads return: the first or the second.
    let end = shelf.operations();
    let undisturbed = Arc::new(shelf.images(end).take(2).last().expect("an image").shelf());
    std::mem::forget(Journal::open(undisturbed.clone(), small()).expect("opens"));
    shelf.kill_at(end + undisturbed.operations() - 1);
    assert!(Journal::open(shelf.clone(), small()).is_err(), "killed while opening");
    shelf.restart();
    let last = shelf.trace().last().map(Step::operation);
    assert_eq!(last, Some(Operation::Write), "between write and flush");
}

/// A reason why leaving out an instruction does no harm. Each reason is a property of the algorithm, not of the test;
/// the comment beside it proves it.
struct Redundant {
    because: &'static str,
    applies: fn(&Life, &Persist) -> bool,
}

const REDUNDANT: &[Redundant] = &[
    // Opening a device makes persistent what a killed process left, and usually there is nothing to make persistent.
    // Then the images with and without the instruction are the same.
    Redundant { because: "there was nothing left to make persistent", applies: |_, persist| persist.atoms == 0 },
    // A closing batch has no record. It protects the batches before it against damage, and a crash causes no damage.
    Redundant {
        because: "a closing batch holds no record",
        applies: |life, persist| life.closings.iter().any(|closing| closing.contains(&persist.step)),
    },
];

/// The first image that violates a guarantee, of those after operation `from`.
fn violation(shelf: &CrashShelf, history: &History, from: usize) -> Option<String> {
    let mut count = 0;
    for point in from..=shelf.operations() {
        for image in shelf.images(point) {
            // The two ways of opening alternate.
            let check = if count % 2 == 0 { Check::Everything } else { Check::Tail };
            count += 1;
            let found = match recover_checking(Arc::new(image.shelf()), check) {
                Ok((journal, found)) => {
                    std::mem::forget(journal);
                    found
                }
                Err(error) => return Some(format!("{image}: {error}")),
            };
            if let Err(why) = history.check(point, &found) {
                return Some(format!("{image}: {why}"));
            }
        }
    }
    None
}

/// Leaves out each instruction in turn. Returns how many omissions were detected, and the reasons for the others.
fn mutate(medium: Medium, seed: u64) -> String {
    let shelf = medium.shelf(seed);
    let life = live(&shelf);
    assert_eq!(violation(&shelf, &life.history, 0), None, "nothing was left out");
    let (persists, trace) = (shelf.persists(), shelf.trace());
    let mut noticed = 0;
    let mut redundant = vec![0; REDUNDANT.len()];
    for (nth, persist) in persists.iter().enumerate() {
        let rule = REDUNDANT.iter().position(|rule| (rule.applies)(&life, persist));
        let shelf = medium.shelf(seed);
        shelf.omit(nth);
        let Life { history, .. } = live(&shelf);
        // Up to the omitted instruction, the recordings are the same.
        let found = violation(&shelf, &history, persist.step);
        match (found, rule) {
            (Some(why), None) => {
                println!("{medium:?} {nth} {persist:?}: {why}");
                noticed += 1;
            }
            (None, Some(rule)) => redundant[rule] += 1,
            (None, None) => {
                let around = &trace[persist.step.saturating_sub(4)..trace.len().min(persist.step + 4)];
                let around: Vec<String> = around.iter().map(ToString::to_string).collect();
                panic!("{medium:?}: nobody notices when {nth} is left out: {persist:?} among {around:#?}")
            }
            (Some(why), Some(rule)) => {
                panic!("{medium:?}: {nth} {persist:?} is needed although {}: {why}", REDUNDANT[rule].because)
            }
        }
    }
    let kinds = [Instruction::Flush, Instruction::WriteBack, Instruction::Fence, Instruction::Sync];
    let count = |kind| persists.iter().filter(|persist| persist.instruction == kind).count();
    let kinds = kinds.map(|kind| (count(kind), kind));
    let kinds: Vec<String> =
        kinds.iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} of kind {kind}")).collect();
    let reasons =
        REDUNDANT.iter().zip(&redundant).map(|(rule, count)| format!(", {count} redundant because {}", rule.because));
    assert!(noticed > persists.len() / 3, "{medium:?}: only {noticed} noticed");
    format!("{}, {noticed} noticed{}", kinds.join(", "), reasons.collect::<String>())
}

#[test]
fn each_flush_and_fence_left_out_is_noticed_or_is_known_to_be_redundant() {
    clear_and_encrypted(|| {
        for medium in MEDIA {
            println!("{medium:?}: {}", mutate(medium, seed(4)));
        }
    });
}

/// With several threads a recording differs from run to run. On persistent memory each recording needs the fence of
/// each thread.
#[test]
fn each_fence_left_out_under_several_threads_is_noticed() {
    for mode in [PmemMode::Adr, PmemMode::Eadr] {
        let mut noticed = 0;
        for nth in 0.. {
            let shelf = Medium::Pmem(mode).shelf(seed(4));
            shelf.omit(nth);
            let acknowledged = several_threads(&shelf);
            let Some(omitted) = shelf.persists().get(nth).cloned() else { break };
            assert_eq!(omitted.instruction, Instruction::Fence, "nothing else is asked for");
            let found = first_loss(&shelf, &acknowledged, omitted.step);
            assert!(found.is_some(), "{mode:?}: nobody notices when {nth} is left out: {omitted:?}");
            noticed += 1;
        }
        println!("{mode:?}: {noticed} fences of several threads, all noticed");
        assert!(noticed > 10);
    }
}

#[test]
fn a_mapping_by_page_taken_for_one_by_line_is_noticed() {
    for believed in [PmemMode::Adr, PmemMode::Eadr] {
        let shelf = Arc::new(CrashShelf::mistaken(seed(4), PmemMode::Pages, believed));
        let life = live(&shelf);
        let why = violation(&shelf, &life.history, 0);
        println!("{why:?}");
        assert!(why.is_some(), "nothing was synced");
    }
}
