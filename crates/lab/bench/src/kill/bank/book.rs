//! [`Book`]: one teller's record of its transactions, and the data that must therefore be stored. Pure.
//!
//! ```text
//!   planned --commit answered-------------------> kept        must be there, whole
//!      |  \--refused, or rolled back------------> void        must not be there
//!      |
//!      +--connection broke--> in doubt --looked-> kept, or void: from now on one of the two for good
//! ```
//!
//! Every transaction writes one row of the ledger with an id that no other transaction uses; this row shows whether the
//! transaction is present. Its other writes show whether it is present *as a whole*: balances follow from the kept
//! transfers, and each teller's notes are its own, so that each of them is known to the byte.

use std::collections::{BTreeMap, HashMap};

/// Accounts, numbered from 0.
pub(super) const ACCOUNTS: usize = 64;
/// The balance of each at the beginning.
pub(super) const BALANCE: i64 = 1_000;
/// Ids of a teller's rows begin at its number times this.
const IDS: i64 = 1_000_000_000;

/// The writes of a transaction besides its row of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Moves an amount from one account to another.
    Transfer { source: usize, target: usize, amount: i64 },
    /// Writes notes, by INSERT or by COPY.
    Write { notes: Vec<(i64, String)>, copy: bool },
    /// Writes a note anew.
    Change { note: i64, text: String },
    /// Removes a note.
    Remove { note: i64 },
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BankPlan {
    /// Id of its row of the ledger.
    pub(super) id: i64,
    /// Its writes.
    pub(super) deed: Deed,
    /// How it is sent.
    pub(super) way: Way,
}

/// How a transaction is sent, and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// BEGIN, statements, COMMIT, each answered before the next.
    Block,
    /// All statements in one message.
    AtOnce,
    /// BEGIN, statements, ROLLBACK.
    TakenBack,
}

/// The known state of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Kept,
    Void,
    InDoubt,
}

/// A row of the ledger: source, target and amount; zeros where nothing was moved.
pub(super) type Entry = (i64, i64, i64);

impl Deed {
    /// Its row of the ledger.
    pub(super) fn entry(&self) -> Entry {
        match self {
            Deed::Transfer { source, target, amount } => (*source as i64, *target as i64, *amount),
            Deed::Write { .. } | Deed::Change { .. } | Deed::Remove { .. } => (0, 0, 0),
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Book {
    teller: usize,
    random: fastrand::Rng,
    next: i64,
    transactions: Vec<(BankPlan, State)>,
    notes: BTreeMap<i64, String>,
}

/// The result of a comparison with the database; all but `found` and `absent` must be zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct BankCompared {
    /// In doubt, and there.
    pub found: u64,
    /// In doubt, and not there.
    pub absent: u64,
    /// Acknowledged, and not there.
    pub lost: u64,
    /// Rows that are not what the transactions that are there wrote.
    pub half: u64,
    /// There, and never committed.
    pub foreign: u64,
}

impl BankCompared {
    pub(super) fn add(&mut self, other: BankCompared) {
        let BankCompared { found, absent, lost, half, foreign } = other;
        self.found += found;
        self.absent += absent;
        self.lost += lost;
        self.half += half;
        self.foreign += foreign;
    }
}

/// The teller that uses an id.
pub(super) fn teller_of(id: i64) -> i64 {
    id / IDS
}

impl Book {
    pub(super) fn new(teller: usize, seed: u64) -> Book {
        let random = fastrand::Rng::with_seed(seed ^ (teller as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Book { teller, random, next: teller as i64 * IDS, transactions: Vec::new(), notes: BTreeMap::new() }
    }

    fn id(&mut self) -> i64 {
        self.next += 1;
        self.next
    }

    /// Text of a note: mostly of a line, some in extents of their own.
    fn text(&mut self) -> String {
        let bytes =
            if self.random.u8(..16) == 0 { self.random.usize(3_000..20_000) } else { self.random.usize(1..200) };
        std::iter::repeat_with(|| self.random.alphanumeric()).take(bytes).collect()
    }

    /// The next transaction.
    pub(super) fn plan(&mut self) -> BankPlan {
        let notes: Vec<i64> = self.notes.keys().copied().collect();
        let deed = match (self.random.u8(..10), self.random.choice(&notes).copied()) {
            (0, Some(note)) => Deed::Remove { note },
            (1..=2, Some(note)) => Deed::Change { note, text: self.text() },
            (..=3, _) => {
                let copy = self.random.bool();
                let count = if copy { self.random.usize(1..40) } else { self.random.usize(1..4) };
                Deed::Write { notes: (0..count).map(|_| (self.id(), self.text())).collect(), copy }
            }
            _ => {
                let source = self.random.usize(..ACCOUNTS);
                let target = (source + self.random.usize(1..ACCOUNTS)) % ACCOUNTS;
                Deed::Transfer { source, target, amount: self.random.i64(1..100) }
            }
        };
        let way = match (self.random.u8(..8), &deed) {
            (0, _) => Way::TakenBack,
            // COPY has a message of its own.
            (1..=3, Deed::Transfer { .. } | Deed::Change { .. } | Deed::Remove { .. }) => Way::AtOnce,
            _ => Way::Block,
        };
        BankPlan { id: self.id(), deed, way }
    }

    /// Its commit was answered.
    pub(super) fn keep(&mut self, plan: BankPlan) {
        self.apply(&plan.deed);
        self.transactions.push((plan, State::Kept));
    }

    /// It was refused or taken back.
    pub(super) fn forget(&mut self, plan: BankPlan) {
        self.transactions.push((plan, State::Void));
    }

    /// The connection broke before it was answered.
    pub(super) fn doubt(&mut self, plan: BankPlan) {
        // A transaction that was to be rolled back is never committed.
        let state = if plan.way == Way::TakenBack { State::Void } else { State::InDoubt };
        self.transactions.push((plan, state));
    }

    fn apply(&mut self, deed: &Deed) {
        match deed {
            Deed::Transfer { .. } => {}
            Deed::Write { notes, .. } => self.notes.extend(notes.iter().cloned()),
            Deed::Change { note, text } => drop(self.notes.insert(*note, text.clone())),
            Deed::Remove { note } => drop(self.notes.remove(note)),
        }
    }

    /// Transactions known to be there.
    #[cfg(test)]
    fn kept(&self) -> u64 {
        self.transactions.iter().filter(|(_, state)| *state == State::Kept).count() as u64
    }

    /// Compares with the teller's rows of the ledger and its notes, as they are stored. Transactions in doubt are then
    /// decided.
    pub(super) fn compare(&mut self, ledger: &HashMap<i64, Entry>, notes: &BTreeMap<i64, String>) -> BankCompared {
        let mut compared = BankCompared::default();
        let mut known = 0;
        for at in 0..self.transactions.len() {
            let (plan, state) = self.transactions[at].clone();
            let entry = ledger.get(&plan.id);
            known += u64::from(entry.is_some());
            match (state, entry) {
                (State::Kept, None) => compared.lost += 1,
                (State::Void, Some(_)) => compared.foreign += 1,
                (State::InDoubt, Some(_)) => {
                    compared.found += 1;
                    self.apply(&plan.deed);
                    self.transactions[at].1 = State::Kept;
                }
                (State::InDoubt, None) => {
                    compared.absent += 1;
                    self.transactions[at].1 = State::Void;
                }
                (State::Kept, Some(_)) | (State::Void, None) => {}
            }
            compared.half += u64::from(entry.is_some_and(|entry| *entry != plan.deed.entry()));
        }
        compared.foreign += ledger.len() as u64 - known;
        compared.half += differences(&self.notes, notes);
        compared
    }

    /// Adds what its kept transfers moved to the balances.
    pub(super) fn balance(&self, balances: &mut [i64; ACCOUNTS]) {
        for (plan, _) in self.transactions.iter().filter(|(_, state)| *state == State::Kept) {
            if let Deed::Transfer { source, target, amount } = plan.deed {
                balances[source] -= amount;
                balances[target] += amount;
            }
        }
    }

    /// Its number.
    pub(super) fn teller(&self) -> usize {
        self.teller
    }
}

/// Keys that exist on one side only, or whose values differ.
fn differences(expected: &BTreeMap<i64, String>, found: &BTreeMap<i64, String>) -> u64 {
    let missing_or_other = expected.iter().filter(|(id, text)| found.get(id) != Some(text)).count();
    let left_over = found.keys().filter(|id| !expected.contains_key(id)).count();
    (missing_or_other + left_over) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    type Stored = (HashMap<i64, Entry>, BTreeMap<i64, String>);

    /// A book with ten kept transactions, their stored rows, and one more transaction in doubt, with notes.
    fn in_doubt() -> (Book, Stored, BankPlan) {
        let mut book = Book::new(1, 7);
        let mut ledger = HashMap::new();
        for _ in 0..10 {
            let plan = book.plan();
            ledger.insert(plan.id, plan.deed.entry());
            book.keep(plan);
        }
        let notes = book.notes.clone();
        let deed = Deed::Write { notes: vec![(book.id(), "a".to_owned()), (book.id(), "b".to_owned())], copy: false };
        let plan = BankPlan { id: book.id(), deed, way: Way::Block };
        book.doubt(plan.clone());
        (book, (ledger, notes), plan)
    }

    fn stored_whole(stored: &mut Stored, plan: &BankPlan) {
        stored.0.insert(plan.id, plan.deed.entry());
        if let Deed::Write { notes, .. } = &plan.deed {
            stored.1.extend(notes.iter().cloned());
        }
    }

    #[test]
    fn what_was_in_doubt_may_be_there_whole_or_not_at_all_and_is_known_afterwards() {
        let (mut book, stored, _) = in_doubt();
        assert_eq!(book.compare(&stored.0, &stored.1), BankCompared { absent: 1, ..BankCompared::default() });
        assert_eq!(book.compare(&stored.0, &stored.1), BankCompared::default());
        let (mut book, mut stored, plan) = in_doubt();
        stored_whole(&mut stored, &plan);
        assert_eq!(book.compare(&stored.0, &stored.1), BankCompared { found: 1, ..BankCompared::default() });
        assert_eq!((book.compare(&stored.0, &stored.1), book.kept()), (BankCompared::default(), 11));
    }

    #[test]
    fn what_is_lost_half_there_or_was_never_committed_is_seen() {
        type Damage = fn(&mut Stored, &BankPlan);
        let none = BankCompared::default();
        let wrong: [(Damage, BankCompared); 5] = [
            (|stored, plan| stored.0.retain(|id, _| *id == plan.id), BankCompared { found: 1, lost: 10, ..none }),
            (|stored, _| _ = stored.1.pop_last(), BankCompared { found: 1, half: 1, ..none }),
            (|stored, plan| _ = stored.0.remove(&plan.id), BankCompared { absent: 1, half: 2, ..none }),
            (|stored, _| _ = stored.0.insert(IDS + 999_999, (0, 0, 0)), BankCompared { found: 1, foreign: 1, ..none }),
            (|stored, plan| _ = stored.0.insert(plan.id, (1, 2, 3)), BankCompared { found: 1, half: 1, ..none }),
        ];
        for (number, (damage, expected)) in wrong.into_iter().enumerate() {
            let (mut book, mut stored, plan) = in_doubt();
            stored_whole(&mut stored, &plan);
            damage(&mut stored, &plan);
            assert_eq!(book.compare(&stored.0, &stored.1), expected, "{number}");
        }
    }

    #[test]
    fn a_transaction_that_was_taken_back_must_not_be_there() {
        let (mut book, mut stored, plan) = in_doubt();
        stored_whole(&mut stored, &plan);
        book.compare(&stored.0, &stored.1);
        let deed = Deed::Transfer { source: 1, target: 2, amount: 5 };
        let taken_back = BankPlan { id: book.id(), deed, way: Way::TakenBack };
        book.doubt(taken_back.clone());
        stored_whole(&mut stored, &taken_back);
        assert_eq!(book.compare(&stored.0, &stored.1).foreign, 1);
    }

    #[test]
    fn money_is_moved_and_never_made() {
        let mut book = Book::new(3, 1);
        for _ in 0..500 {
            let plan = book.plan();
            book.keep(plan);
        }
        let mut balances = [BALANCE; ACCOUNTS];
        book.balance(&mut balances);
        assert_ne!(balances, [BALANCE; ACCOUNTS]);
        assert_eq!(balances.iter().sum::<i64>(), BALANCE * ACCOUNTS as i64);
        assert_eq!(teller_of(book.id()), book.teller() as i64);
    }
}
