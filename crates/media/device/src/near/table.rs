//! Which page is in which slot of one shard, and which one leaves. Pure: no bytes, no locks.
//!
//! ```text
//! direct    slots: [ page | page | - | page ]          a page has one place; the page that is there leaves
//!
//! managed   small (a tenth)  --seen again-->  main     a page not seen again leaves at the end of small, and is recorded in ghost;
//!              ^                               ^       main keeps those seen since for another round, up to three
//!              new pages                       new pages that are in ghost
//! ```
//!
//! The caller's order of calls: `find`; on a miss `choose`; `evict` if a page is there; then `insert` or `release`.
//! Between `choose` and `evict` nothing has changed for a reader, so a write-back in between may fail.
//!
//! Invariants: a page is in at most one slot; a slot is free, in exactly one queue, or between `evict` and `insert`;
//! ghost contains pages that are in no slot, at most as many as there are slots.

use std::collections::{HashMap, VecDeque};

/// The largest number of rounds that a page stays in main (the paper's two bits).
const SEEN_MAX: u8 = 3;

/// A slot that can be freed, and its page, if there is one.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) slot: usize,
    pub(super) page: Option<u64>,
    from: From,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Direct,
    Free,
    Small,
    Main,
}

/// The table of one shard.
#[derive(Debug)]
pub(super) enum Table {
    Direct(Vec<Option<u64>>),
    Managed(Box<Managed>),
}

#[derive(Debug)]
pub(super) struct Managed {
    slots: HashMap<u64, usize>,
    /// Indexed by slot.
    pages: Vec<Option<u64>>,
    seen: Vec<u8>,
    free: Vec<usize>,
    /// Oldest first.
    small: VecDeque<usize>,
    main: VecDeque<usize>,
    /// Pages that left small, oldest first, each with its number in `remembered`; entries without one are obsolete.
    ghost: VecDeque<(u64, u64)>,
    remembered: HashMap<u64, u64>,
    /// Number of pages that have ever left small.
    left: u64,
    small_max: usize,
}

impl Table {
    pub(super) fn direct(slots: usize) -> Table {
        Table::Direct(vec![None; slots])
    }

    pub(super) fn managed(slots: usize) -> Table {
        Table::Managed(Box::new(Managed {
            slots: HashMap::with_capacity(slots),
            pages: vec![None; slots],
            seen: vec![0; slots],
            free: (0..slots).rev().collect(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghost: VecDeque::new(),
            remembered: HashMap::new(),
            left: 0,
            // A tenth, as in the paper for all its traces.
            small_max: (slots / 10).max(1),
        }))
    }

    /// Returns the slot of a page, and counts the page as seen. `place` is its only one in a direct map.
    pub(super) fn find(&mut self, page: u64, place: usize) -> Option<usize> {
        match self {
            Table::Direct(pages) => (pages[place] == Some(page)).then_some(place),
            Table::Managed(managed) => {
                let slot = *managed.slots.get(&page)?;
                managed.seen[slot] = (managed.seen[slot] + 1).min(SEEN_MAX);
                Some(slot)
            }
        }
    }

    /// Returns the slot for the next page.
    pub(super) fn choose(&mut self, place: usize) -> Choice {
        match self {
            Table::Direct(pages) => Choice { slot: place, page: pages[place], from: From::Direct },
            Table::Managed(managed) => managed.choose(),
        }
    }

    /// Removes the page of a choice; its slot belongs to the caller.
    pub(super) fn evict(&mut self, choice: &Choice) {
        match self {
            Table::Direct(pages) => pages[choice.slot] = None,
            Table::Managed(managed) => managed.evict(choice),
        }
    }

    /// Enters a page into the slot that was freed for it.
    pub(super) fn insert(&mut self, page: u64, slot: usize) {
        match self {
            Table::Direct(pages) => pages[slot] = Some(page),
            Table::Managed(managed) => managed.insert(page, slot),
        }
    }

    /// Returns the slot that was freed without using it.
    pub(super) fn release(&mut self, slot: usize) {
        match self {
            Table::Direct(pages) => pages[slot] = None,
            Table::Managed(managed) => {
                if !managed.free.contains(&slot) {
                    managed.free.push(slot);
                }
            }
        }
    }

    /// Removes a page; its slot is free.
    pub(super) fn remove(&mut self, page: u64, slot: usize) {
        match self {
            Table::Direct(pages) => pages[slot] = None,
            Table::Managed(managed) => {
                managed.slots.remove(&page);
                managed.pages[slot] = None;
                managed.small.retain(|s| *s != slot);
                managed.main.retain(|s| *s != slot);
                managed.free.push(slot);
            }
        }
    }

    /// Every page with its slot.
    pub(super) fn pages(&self) -> impl Iterator<Item = (u64, usize)> + '_ {
        let pages = match self {
            Table::Direct(pages) => pages,
            Table::Managed(managed) => &managed.pages,
        };
        pages.iter().enumerate().filter_map(|(slot, page)| page.map(|page| (page, slot)))
    }
}

impl Managed {
    fn choose(&mut self) -> Choice {
        if let Some(slot) = self.free.last() {
            return Choice { slot: *slot, page: None, from: From::Free };
        }
        loop {
            let from_small = self.small.len() >= self.small_max || self.main.is_empty();
            let queue = if from_small { &mut self.small } else { &mut self.main };
            let slot = *queue.front().expect("a slot that is not free is in a queue");
            if self.seen[slot] == 0 {
                let from = if from_small { From::Small } else { From::Main };
                return Choice { slot, page: self.pages[slot], from };
            }
            // Seen again: from small it moves to main; in main it gets another round, and its count decreases.
            queue.pop_front();
            self.seen[slot] = if from_small { 0 } else { self.seen[slot] - 1 };
            self.main.push_back(slot);
        }
    }

    fn evict(&mut self, choice: &Choice) {
        let (queue, page) = match (choice.from, choice.page) {
            (From::Small, Some(page)) => (&mut self.small, page),
            (From::Main, Some(page)) => (&mut self.main, page),
            _ => return,
        };
        assert_eq!(queue.pop_front(), Some(choice.slot), "the shard was locked since it was chosen");
        self.slots.remove(&page);
        self.pages[choice.slot] = None;
        if choice.from == From::Small {
            self.left += 1;
            self.remembered.insert(page, self.left);
            self.ghost.push_back((page, self.left));
        }
        while self.ghost.len() > self.pages.len() {
            let (page, number) = self.ghost.pop_front().expect("it is longer than nothing");
            if self.remembered.get(&page) == Some(&number) {
                self.remembered.remove(&page);
            }
        }
    }

    fn insert(&mut self, page: u64, slot: usize) {
        if self.free.last() == Some(&slot) {
            self.free.pop();
        }
        let queue = if self.remembered.remove(&page).is_some() { &mut self.main } else { &mut self.small };
        queue.push_back(slot);
        self.seen[slot] = 0;
        self.pages[slot] = Some(page);
        self.slots.insert(page, slot);
    }
}
