//! [`Teller`]: a thread with a connection, one transaction after the other until the connection breaks.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::book::{BankPlan, Book, Deed, Way};
use super::{PATIENCE, USER};
use crate::postgres::{Client, Error};

/// The commands to the tellers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Orders {
    /// Where to work; nowhere while the node is dead or dying.
    pub(super) address: Option<SocketAddr>,
    over: bool,
}

impl Orders {
    /// No new connections, and no new transactions.
    pub(super) fn close(&mut self) {
        self.address = None;
    }

    /// Nothing any more.
    pub(super) fn end(&mut self) {
        *self = Orders { address: None, over: true };
    }
}

/// Where the orders lie.
#[derive(Debug, Default)]
pub(super) struct Desk {
    orders: Mutex<Orders>,
    changed: Condvar,
}

impl Desk {
    pub(super) fn order(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut lock(&self.orders));
        self.changed.notify_all();
    }

    fn address(&self) -> Option<SocketAddr> {
        lock(&self.orders).address
    }

    /// Waits for an address; none when all is over.
    fn wait(&self) -> Option<SocketAddr> {
        let mut orders = lock(&self.orders);
        loop {
            match *orders {
                Orders { over: true, .. } => return None,
                Orders { address: Some(address), .. } => return Some(address),
                Orders { address: None, .. } => {
                    orders = self.changed.wait(orders).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

/// Plain data: a panic elsewhere does not make it wrong.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Teller {
    /// Held while there is a connection.
    pub(super) book: Mutex<Book>,
    acknowledged: AtomicU64,
    refused: AtomicU64,
    complaint: Mutex<Option<String>>,
}

impl Teller {
    pub(super) fn new(book: Book) -> Teller {
        let (acknowledged, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        Teller { book: Mutex::new(book), acknowledged, refused, complaint: Mutex::default() }
    }

    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn complaint(&self) -> Option<String> {
        lock(&self.complaint).clone()
    }

    /// Whether it has a connection, or is about to have one.
    pub(super) fn is_busy(&self) -> bool {
        self.book.try_lock().is_err()
    }

    /// The thread.
    pub(super) fn serve(&self, desk: &Desk) {
        while let Some(address) = desk.wait() {
            let mut book = lock(&self.book);
            // Since it was waited for, the node may have been killed.
            if desk.address() != Some(address) {
                continue;
            }
            if let Ok(client) = Client::connect(address, USER, PATIENCE) {
                self.work(client, &mut book, desk, address);
            }
            drop(book);
            // Pause, so that a node that refuses connections is not called in a tight loop.
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    fn work(&self, mut client: Client, book: &mut Book, desk: &Desk, address: SocketAddr) {
        while desk.address() == Some(address) {
            let plan = book.plan();
            match perform(&mut client, &plan) {
                Ok(true) => {
                    book.keep(plan);
                    self.acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Ok(false) => book.forget(plan),
                // Of two that wait for an account of one another, one is told.
                Err(Error::Refused { code, .. }) if code == "40001" || code == "40P01" => {
                    book.forget(plan);
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    if client.query("ROLLBACK").is_err() {
                        return;
                    }
                }
                // A node that stops ends what runs (class 57), whatever that has come to.
                Err(Error::Refused { code, .. }) if code.starts_with("57") => return book.doubt(plan),
                Err(error @ Error::Refused { .. }) => {
                    *lock(&self.complaint) = Some(format!("{error}, for {:?} by {:?}", plan.deed.entry(), plan.way));
                    return book.forget(plan);
                }
                Err(error @ Error::Broken(_)) => {
                    if error.is_late() {
                        *lock(&self.complaint) = Some(format!("no answer for {} s", PATIENCE.as_secs()));
                    }
                    return book.doubt(plan);
                }
            }
        }
    }
}

/// Sends a transaction: whether it was committed, and not taken back.
fn perform(client: &mut Client, plan: &BankPlan) -> Result<bool, Error> {
    let (source, target, amount) = plan.deed.entry();
    let entry = format!("INSERT INTO ledger VALUES ({}, {source}, {target}, {amount})", plan.id);
    if plan.way == Way::AtOnce {
        let statements = [statements(&plan.deed), vec![entry]].concat();
        client.query(&statements.join("; "))?;
        return Ok(true);
    }
    client.query("BEGIN")?;
    match &plan.deed {
        Deed::Write { notes, copy: true } => {
            let data: String = notes.iter().map(|(id, text)| format!("{id}\t{text}\n")).collect();
            client.copy_in("COPY note FROM STDIN", data.as_bytes())?;
        }
        deed => statements(deed).iter().try_for_each(|sql| client.query(sql).map(drop))?,
    }
    client.query(&entry)?;
    let end = if plan.way == Way::TakenBack { "ROLLBACK" } else { "COMMIT" };
    // The answer to COMMIT in a failed transaction is ROLLBACK; but then a statement was refused before.
    Ok(client.query(end)?.tag == "COMMIT")
}

fn statements(deed: &Deed) -> Vec<String> {
    match deed {
        Deed::Transfer { source, target, amount } => vec![
            format!("UPDATE account SET balance = balance - {amount} WHERE id = {source}"),
            format!("UPDATE account SET balance = balance + {amount} WHERE id = {target}"),
        ],
        Deed::Write { notes, .. } => {
            let rows: Vec<String> = notes.iter().map(|(id, text)| format!("({id}, '{text}')")).collect();
            vec![format!("INSERT INTO note VALUES {}", rows.join(", "))]
        }
        Deed::Change { note, text } => vec![format!("UPDATE note SET body = '{text}' WHERE id = {note}")],
        Deed::Remove { note } => vec![format!("DELETE FROM note WHERE id = {note}")],
    }
}
