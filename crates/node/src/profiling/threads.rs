//! [`ThreadTimes`]: processor time and waiting time of the threads of this process, by component, and how many of them run.
//!
//! They are read from `/proc/self/task`. A thread that ends takes the time since it was last looked at with it; the difference to the time of
//! the whole process is the component `ended`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::time::Duration;

use foldhash::fast::FixedState;
use profile::CpuUse;

/// Threads that are looked at: a process has far fewer.
const THREADS_MAX: usize = 4096;

/// Of threads that have ended, and of what is not known.
const ENDED: &str = "ended";

/// Which component a thread is of, by the begin of its name; the system keeps the first 15 bytes.
const COMPONENTS: &[(&str, &str)] = &[
    ("journal", "journal"),
    ("store-apply", "applier"),
    ("store-", "checkpoints"),
    ("sql", "sql"),
    ("search", "search"),
    ("nbd", "volumes"),
    ("volume", "volumes"),
    ("device", "devices"),
    ("node", "services"),
    ("profile", "profile"),
    ("metrics", "figures"),
    ("history", "figures"),
    ("alerts", "figures"),
];

/// The component of a thread.
fn component(name: &str) -> &'static str {
    COMPONENTS.iter().find(|(begin, _)| name.starts_with(begin)).map_or("other", |(_, component)| component)
}

struct Thread {
    component: &'static str,
    times: Times,
}

/// Nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    ran: u64,
    waited: u64,
}

/// See the module's text.
#[derive(Default)]
pub(super) struct ThreadTimes {
    threads: HashMap<u32, Thread, FixedState>,
    sums: BTreeMap<&'static str, Times>,
    /// Of the process when it began.
    begun: Option<Duration>,
    is_unknown: bool,
}

impl ThreadTimes {
    /// Begins now.
    pub(super) fn begin() -> ThreadTimes {
        let mut times = ThreadTimes { begun: Some(process_time()), ..ThreadTimes::default() };
        times.look();
        times.sums.clear();
        times
    }

    /// Adds what has come since the last look.
    pub(super) fn look(&mut self) {
        let mut there = HashSet::with_hasher(FixedState::default());
        for id in tasks() {
            there.insert(id);
            let read = fs::read_to_string(format!("/proc/self/task/{id}/schedstat"));
            let Some(times) = read.ok().and_then(|text| times_in(&text)) else {
                // It has ended, or the system does not count.
                self.is_unknown |= !fs::exists("/proc/self/schedstat").unwrap_or(false);
                continue;
            };
            let thread = self.threads.entry(id).or_insert_with(|| {
                let name = fs::read_to_string(format!("/proc/self/task/{id}/comm")).unwrap_or_default();
                Thread { component: component(name.trim_end()), times: Times::default() }
            });
            // Another thread with the same number has run less.
            let before = if times.ran < thread.times.ran { Times::default() } else { thread.times };
            let sum = self.sums.entry(thread.component).or_default();
            sum.ran += times.ran - before.ran;
            sum.waited += times.waited.saturating_sub(before.waited);
            thread.times = times;
        }
        self.threads.retain(|id, _| there.contains(id));
    }

    /// Whether the system counts the time of threads.
    pub(super) fn is_known(&self) -> bool {
        !self.is_unknown
    }

    /// Processor time by component, in the order of the names.
    pub(super) fn cpu(&self) -> Vec<CpuUse> {
        let whole = process_time().saturating_sub(self.begun.unwrap_or_default()).as_secs_f64();
        let mut cpu = used(self.sums.iter().map(|(component, times)| (*component, times.ran)));
        let ended = whole - cpu.iter().map(|used| used.seconds).sum::<f64>();
        if ended > 0.0 {
            cpu.push(CpuUse { component: ENDED.to_owned(), seconds: ended });
        }
        cpu
    }

    /// Time that threads were ready and waited for a processor, by component.
    pub(super) fn waits(&self) -> Vec<CpuUse> {
        used(self.sums.iter().map(|(component, times)| (*component, times.waited)))
    }
}

fn used(sums: impl Iterator<Item = (&'static str, u64)>) -> Vec<CpuUse> {
    sums.map(|(component, ns)| CpuUse { component: component.to_owned(), seconds: ns as f64 / 1e9 }).collect()
}

/// How many threads run or could run at this moment, without the one that asks.
pub(super) fn runnable() -> u32 {
    let is_runnable = |id: &u32| {
        let stat = fs::read_to_string(format!("/proc/self/task/{id}/stat"));
        stat.is_ok_and(|stat| state_in(&stat) == Some('R'))
    };
    let all = tasks().filter(is_runnable).count() as u32;
    all.saturating_sub(1)
}

fn tasks() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(THREADS_MAX)
}

/// The times in a `schedstat`: ran, waited, how often.
fn times_in(text: &str) -> Option<Times> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    let (ran, waited) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
    Some(Times { ran, waited })
}

/// The state in a `stat`: behind the name, which may have blanks and brackets.
fn state_in(text: &str) -> Option<char> {
    text.rsplit_once(')')?.1.trim_start().chars().next()
}

fn process_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn a_thread_is_of_the_component_that_its_name_says() {
        let found = ["journal-flush", "store-apply", "store-write-bac", "sql-session", "node", "main"].map(component);
        assert_eq!(found, ["journal", "applier", "checkpoints", "sql", "services", "other"]);
    }

    #[test]
    fn lines_of_the_system_are_read() {
        assert_eq!(times_in("123 45 6\n"), Some(Times { ran: 123, waited: 45 }));
        assert_eq!(times_in("x"), None);
        assert_eq!(state_in("17 (a ) b) R 1 2 3"), Some('R'));
        assert_eq!(state_in(""), None);
    }

    #[test]
    fn what_a_thread_computes_is_counted_for_its_component_also_after_its_end() {
        let mut times = ThreadTimes::begin();
        let (done, ended) = (std::sync::mpsc::channel::<()>(), std::sync::mpsc::channel::<()>());
        let work = move || {
            let before = crate::clock::thread_time();
            while crate::clock::thread_time() - before < Duration::from_millis(30) {
                black_box((0..1000u64).sum::<u64>());
            }
            done.0.send(()).expect("the test waits");
            let _ = ended.1.recv();
        };
        let thread = std::thread::Builder::new().name("sql-test".into()).spawn(work).expect("a thread");
        done.1.recv().expect("it has computed");
        times.look();
        if times.is_known() {
            let sql = times.cpu().into_iter().find(|used| used.component == "sql").expect("it ran");
            assert!(sql.seconds >= 0.029, "{sql:?}");
        }
        ended.0.send(()).expect("it waits");
        thread.join().expect("no panic");
        times.look();
        let sum: f64 = times.cpu().iter().map(|used| used.seconds).sum();
        assert!(sum >= 0.029, "{sum}");
    }
}
