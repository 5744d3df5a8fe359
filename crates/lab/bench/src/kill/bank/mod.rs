//! A bank over SQL, beside the message load: tellers whose transactions are killed at any point.
//!
//! ```text
//!   teller 0 --- a connection ---+                     ledger   a row for each transaction, its id drawn by the teller
//!   teller 1 --- a connection ---+--- the node's SQL   account  balances; each follows from the transfers of the ledger
//!     ...                        |                     note     rows of one teller each: INSERT, COPY, UPDATE, DELETE
//!   look     --- after a kill ---+
//! ```
//!
//! Each teller is a thread with one transaction outstanding; several of them change the same accounts, so that they wait
//! for one another, and the node also refuses some. When a connection breaks, the transaction is in doubt until the ledger is read.
//!
//! Verified after every kill: each acknowledged transaction is present as a whole, one in doubt is present as a whole
//! or not at all, one that was refused or rolled back is absent, and one that was found once stays (`book`). The sum of
//! all balances is queried from the node, too.

mod book;
mod teller;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde::Serialize;

pub use book::BankCompared;
use book::{ACCOUNTS, BALANCE, Book, Entry, teller_of};
use teller::{Desk, Orders, Teller};

use crate::postgres::Client;

/// The user that logs in; without a password.
pub(super) const USER: &str = "teller";

/// How long a statement may take on a machine that does much else; recovery is over by then.
const PATIENCE: Duration = Duration::from_secs(60);

/// The result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BankReport {
    /// Connections, each with one transaction outstanding.
    pub connections: usize,
    /// Transactions whose commit was answered.
    pub acknowledged: u64,
    /// Transactions that the node refused, since another one was faster, or waited for this one.
    pub refused: u64,
    /// Times that everything was looked at.
    pub looks: u64,
    /// The results of these checks.
    #[serde(flatten)]
    pub compared: BankCompared,
    /// Looks at which the sum of all balances was wrong.
    pub wrong_sums: u64,
}

impl BankReport {
    /// The counts that must be zero.
    pub fn faults(&self) -> u64 {
        let BankCompared { lost, half, foreign, .. } = self.compared;
        lost + half + foreign + self.wrong_sums
    }
}

/// The bank, and its tellers' threads.
pub(super) struct Bank {
    tellers: Vec<Arc<Teller>>,
    threads: Vec<JoinHandle<()>>,
    desk: Arc<Desk>,
    report: BankReport,
}

impl Bank {
    /// Tellers that wait for an address.
    pub(super) fn new(connections: usize, seed: u64) -> anyhow::Result<Bank> {
        let desk = Arc::new(Desk::default());
        let tellers: Vec<Arc<Teller>> =
            (0..connections).map(|number| Arc::new(Teller::new(Book::new(number + 1, seed)))).collect();
        let mut threads = Vec::new();
        for teller in &tellers {
            let (teller, desk) = (teller.clone(), desk.clone());
            let spawned = std::thread::Builder::new().name("teller".into()).spawn(move || teller.serve(&desk));
            threads.push(spawned.context("no thread for a teller")?);
        }
        Ok(Bank { tellers, threads, desk, report: BankReport { connections, ..BankReport::default() } })
    }

    /// Makes the tables, with money on the accounts.
    pub(super) fn found(address: SocketAddr) -> anyhow::Result<()> {
        let mut client = Client::connect(address, USER, PATIENCE)?;
        client.query(
            "CREATE TABLE account (id int PRIMARY KEY, balance bigint NOT NULL);
             CREATE TABLE ledger (id bigint PRIMARY KEY, source bigint NOT NULL, target bigint NOT NULL, amount bigint NOT NULL);
             CREATE TABLE note (id bigint PRIMARY KEY, body text NOT NULL)",
        )?;
        let rows: Vec<String> = (0..ACCOUNTS).map(|id| format!("({id}, {BALANCE})")).collect();
        client.query(&format!("INSERT INTO account VALUES {}", rows.join(", ")))?;
        Ok(())
    }

    /// Has the tellers work there, with new connections.
    pub(super) fn aim(&self, address: SocketAddr) {
        self.desk.order(|orders| orders.address = Some(address));
    }

    /// The node is about to be killed: a teller whose connection breaks does not reconnect, because another process may
    /// get the port.
    pub(super) fn node_dies(&self) {
        self.desk.order(Orders::close);
    }

    /// Waits until no teller has a connection: a transaction without an answer by now is in doubt.
    pub(super) fn wait_idle(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        while self.tellers.iter().any(|teller| teller.is_busy()) {
            if begun.elapsed() > PATIENCE {
                bail!("a teller's connection to a killed node is still open");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.complaint()
    }

    /// Answers to a teller that no node should send.
    pub(super) fn complaint(&self) -> anyhow::Result<()> {
        match self.tellers.iter().find_map(|teller| teller.complaint()) {
            Some(complaint) => bail!("SQL: {complaint}"),
            None => Ok(()),
        }
    }

    /// Transactions acknowledged so far.
    pub(super) fn acknowledged(&self) -> u64 {
        self.tellers.iter().map(|teller| teller.acknowledged()).sum()
    }

    /// Compares the stored data with the tellers' records. The tellers must be idle.
    pub(super) fn look(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let stored = Stored::read(address).context("looking at what the bank has stored")?;
        let mut balances = [BALANCE; ACCOUNTS];
        let none = (HashMap::new(), BTreeMap::new());
        let mut others = stored.by_teller.len();
        for teller in &self.tellers {
            let mut book = teller.book.lock().unwrap_or_else(PoisonError::into_inner);
            let found = stored.by_teller.get(&(book.teller() as i64));
            others -= usize::from(found.is_some());
            let (ledger, notes) = found.unwrap_or(&none);
            self.report.compared.add(book.compare(ledger, notes));
            book.balance(&mut balances);
        }
        let wrong = balances.iter().zip(&stored.balances).filter(|(expected, found)| expected != found).count();
        self.report.compared.half += wrong as u64;
        self.report.compared.foreign += others as u64;
        self.report.wrong_sums += u64::from(stored.sum != BALANCE * ACCOUNTS as i64);
        self.report.looks += 1;
        Ok(())
    }

    /// The report so far.
    pub(super) fn report(&self) -> BankReport {
        let refused = self.tellers.iter().map(|teller| teller.refused()).sum();
        BankReport { acknowledged: self.acknowledged(), refused, ..self.report }
    }
}

impl Drop for Bank {
    fn drop(&mut self) {
        self.desk.order(Orders::end);
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed that on standard error.
            let _ = thread.join();
        }
    }
}

/// Rows of the ledger, and notes.
type Rows = (HashMap<i64, Entry>, BTreeMap<i64, String>);

/// The content of the node's tables.
#[derive(Debug)]
struct Stored {
    by_teller: HashMap<i64, Rows>,
    balances: [i64; ACCOUNTS],
    sum: i64,
}

impl Stored {
    fn read(address: SocketAddr) -> anyhow::Result<Stored> {
        let mut client = Client::connect(address, USER, PATIENCE)?;
        let mut stored = Stored { by_teller: HashMap::new(), balances: [0; ACCOUNTS], sum: 0 };
        for row in numbers(&mut client, "SELECT id, source, target, amount FROM ledger")? {
            let [id, source, target, amount] = row[..] else { bail!("the ledger has other columns") };
            stored.by_teller.entry(teller_of(id)).or_default().0.insert(id, (source, target, amount));
        }
        for row in numbers(&mut client, "SELECT id, balance FROM account")? {
            let [id, balance] = row[..] else { bail!("the accounts have other columns") };
            let account = usize::try_from(id).ok().and_then(|id| stored.balances.get_mut(id));
            *account.with_context(|| format!("there is no account {id}"))? = balance;
        }
        for row in client.query("SELECT id, body FROM note")?.rows {
            let mut cells = row.into_iter().flatten();
            let id: i64 = cells.next().context("a note without an id")?.parse()?;
            let body = cells.next().context("a note without text")?;
            stored.by_teller.entry(teller_of(id)).or_default().1.insert(id, body);
        }
        stored.sum = match &numbers(&mut client, "SELECT sum(balance) FROM account")?[..] {
            [row] if row.len() == 1 => row[0],
            other => bail!("a sum is one number, and not {other:?}"),
        };
        Ok(stored)
    }
}

/// The rows of a query of numbers.
fn numbers(client: &mut Client, sql: &str) -> anyhow::Result<Vec<Vec<i64>>> {
    let mut rows = Vec::new();
    for row in client.query(sql)?.rows {
        let cells: Vec<&String> = row.iter().flatten().collect();
        ensure!(cells.len() == row.len(), "{sql}: a NULL");
        let numbers: Result<Vec<i64>, _> = cells.into_iter().map(|cell| cell.parse()).collect();
        rows.push(numbers.with_context(|| format!("{sql}: {row:?}"))?);
    }
    Ok(rows)
}
