//! SQL in a node: the settings, the service on a runtime of its own, and the virtual tables that the message engine lends.
//!
//! ```text
//!   [sql] of terrace.toml --> Settings --start--> Running: Engine over the node's store, Server over the engine
//!                                               virtual tables hl7.messages, hl7.segments, hl7.fields
//! ```
//!
//! Sessions and queries run on threads of their own, apart from those that serve sockets: a session that computes or
//! waits for a page must not delay acknowledgements or logins. The service ends before the node closes its store.

mod about;
mod announcing;
mod fields;
mod lending;
mod messages;
mod rights;
mod segments;
mod walk;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use announcing::Announcing;
use anyhow::Context;
use hl7::mask::Masker;
use interop::production::units::{Bytes, Span};
use interop::running::RunningProduction;
use node::audit::{Audit, AuditEntry};
use node::identity::{Import, ImportedUser};
use serde::Deserialize;
pub use sql::engine::TableReport;
use sql::engine::{MessageSource, SpillOptions};
pub use sql::repair::give_up;
use sql::wire::{Server, Verifier, WireOptions};
use sql::{Engine, EngineOptions, VirtualTable};
use store::{SpaceLimit, SpaceLimits};
use walk::History;

use crate::listeners::{self, TlsKeys};

/// Threads that serve sockets and logins: computing has threads of its own.
const WIRE_THREADS: usize = 2;

/// Below this a batch of rows and a merge of two have no room beside each other.
const MEMORY_MIN: usize = 16 << 20;

/// The default bound of spilled data at a time.
const SPILL_MAX: u64 = 16 << 30;

/// `[sql]`: there is a service where the table is there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Address to listen on. Default 127.0.0.1:5432. Beyond this machine TLS is a must.
    listen: Option<SocketAddr>,
    /// Users to import at the first start: name, and the output of `terrace sql verifier` for the password. They are in the store
    /// from then on, where `terrace user` changes them; leave this table out then.
    #[serde(default)]
    users: BTreeMap<String, String>,
    /// Users log in from this machine without their password. Default no.
    #[serde(default)]
    trust: bool,
    /// Certificate, PEM. Default: no TLS.
    certificate: Option<PathBuf>,
    /// Its key, PEM.
    key: Option<PathBuf>,
    /// Authorities of clients, PEM: each client inside TLS has to show a certificate of one of them. Default: clients show none.
    client_authority: Option<PathBuf>,
    /// Revocation lists of these authorities, PEM. Default: none.
    client_revocations: Option<PathBuf>,
    /// Refuse connections without TLS. Default: where it listens beyond this machine.
    tls_required: Option<bool>,
    /// Most connections at a time, 1 or more. Default 100. The last one is kept for administrators.
    connections: Option<usize>,
    /// Most of them from one address (IPv4, or the first 64 bits of IPv6), 1 or more. Default: half of `connections`.
    connections_per_address: Option<usize>,
    /// A login must be over within, TLS included. Default 60 s.
    login_timeout: Option<Span>,
    /// Users for whom the last connection is kept. Default none: then it is kept for connections from this machine.
    #[serde(default)]
    administrators: Vec<String>,
    /// How long a statement may take, such as "30s", where its session does not set `statement_timeout`. Default: as long as it
    /// needs.
    statement_timeout: Option<Span>,
    /// How long a transaction may wait for its client, where its session does not set
    /// `idle_in_transaction_session_timeout`. Default: no limit.
    idle_in_transaction_session_timeout: Option<Span>,
    /// Threads of each query. Default: one for each core.
    threads: Option<usize>,
    /// Memory that all statements together may take, at least 16 MiB. Default 1 GiB. A quarter of it is for sorting,
    /// grouping and joining; data that does not fit is spilled. An eighth of it is for the changes of a transaction;
    /// further changes go to the journal.
    memory: Option<Bytes>,
    /// Maximum size of the pages in all, of tables and messages, before statements that need more space are refused
    /// (53100); together with `[messages] retention` it bounds what tables take. Default: no bound.
    space: Option<Bytes>,
    /// How much of the medium of the pages statements leave free for messages (53100). Default 512 MiB.
    reserve: Option<Bytes>,
    /// The folder that is spilled to. Default: `sql-spill` in the data directory. It has mode 0700 and is emptied at start.
    spill: Option<PathBuf>,
    /// The bound of spilled data at a time. Default 16 GiB.
    spill_max: Option<Bytes>,
    /// Rows move to row groups in the background. Default yes.
    convert: Option<bool>,
    /// Folders that external tables may lie in. Default none: there are no external tables.
    #[serde(default)]
    external: Vec<PathBuf>,
}

/// The message history as tables; what callers read of bodies is in the audit, and masked where they may not see it otherwise.
fn history(audit: Option<&Arc<Audit>>, masker: &Arc<Masker>) -> Vec<(String, Arc<dyn VirtualTable>)> {
    vec![
        ("hl7.messages".to_owned(), Arc::new(History::<messages::Messages>::new(audit, masker))),
        ("hl7.segments".to_owned(), Arc::new(History::<segments::Segments>::new(audit, masker))),
        ("hl7.fields".to_owned(), Arc::new(History::<fields::Fields>::new(audit, masker))),
    ]
}

/// Room that tables leave to messages where nothing is set: half of what the journal may take by default.
const RESERVE_BYTES: u64 = 512 << 20;

/// Below this much memory, what the allocator keeps of freed pages for a second counts.
const SMALL_BYTES: usize = 512 << 20;

/// Of the memory of all statements, what one transaction may keep of its changes.
const TRANSACTION_OF: usize = 8;

impl Settings {
    /// Space that transactions leave to messages.
    pub fn bounds(&self) -> SpaceLimits {
        let reserve = self.reserve.map_or(RESERVE_BYTES, |bytes| bytes.0);
        SpaceLimits {
            pages: self.space.map(|bytes| SpaceLimit { bytes: bytes.0, setting: "[sql] space" }),
            reserve: Some(SpaceLimit { bytes: reserve, setting: "[sql] reserve" }),
        }
    }

    /// Memory of a transaction's changes, in bytes: a part of the memory of all statements.
    pub fn transaction_bytes(&self) -> usize {
        self.memory.map_or(EngineOptions::default().query_bytes, Bytes::as_usize) / TRANSACTION_OF
    }

    fn verifiers(&self) -> anyhow::Result<BTreeMap<String, Verifier>> {
        let read = |(name, verifier): (&String, &String)| {
            let verifier: Verifier = verifier.parse().with_context(|| {
                format!("sql.users.{name} is no verifier: put there what `terrace sql verifier` prints")
            })?;
            Ok((name.clone(), verifier))
        };
        self.users.iter().map(read).collect()
    }

    /// Brings the users of the settings into the store, once in the life of a node.
    ///
    /// # Errors
    /// The table was changed after that.
    pub async fn import(&self, node: &RunningProduction) -> anyhow::Result<()> {
        if self.trust {
            tracing::warn!("[sql] trust: whoever can connect from this machine is any user, without a password");
        }
        // Where they cannot be read, it is a trouble of the node, which goes on.
        if self.users.is_empty() || node.guard().unreadable().is_some() {
            return Ok(());
        }
        let is_administrator = |name: &String| self.administrators.contains(name);
        let of_settings = self.verifiers()?.into_iter();
        let users: Vec<ImportedUser> = of_settings
            .map(|(name, verifier)| ImportedUser { administrator: is_administrator(&name), name, verifier })
            .collect();
        if !node.guard().stored().is_imported()? {
            let names: Vec<&str> = users.iter().map(|user| user.name.as_str()).collect();
            let entry = AuditEntry::new("identity.import", "[sql.users]").with("users", names.join(" "));
            node.audit().write(entry).await.context("the users of the settings are not imported without an entry")?;
        }
        match tokio::task::block_in_place(|| node.guard().import(&users))? {
            Import::Done => tracing::info!(
                users = users.len(),
                "[sql.users] was imported: users are in the store now, and `terrace user` changes them; remove the table"
            ),
            Import::Before => tracing::warn!(
                "[sql.users] was imported before and has no effect any more: remove it, `terrace user` changes users"
            ),
        }
        Ok(())
    }

    fn wire(&self) -> anyhow::Result<WireOptions> {
        let defaults = WireOptions::default();
        let listen = self.listen.unwrap_or(defaults.listen);
        let users = self.verifiers()?;
        let keys = TlsKeys {
            certificate: self.certificate.as_deref(),
            key: self.key.as_deref(),
            client_authority: self.client_authority.as_deref(),
            client_revocations: self.client_revocations.as_deref(),
            tls_required: self.tls_required,
        };
        let tls = listeners::tls("sql", keys, listen)?;
        let connections_max = self.connections.unwrap_or(defaults.connections_max);
        let connections_per_address = self.connections_per_address;
        anyhow::ensure!(
            connections_max > 0 && connections_per_address != Some(0),
            "sql.connections and sql.connections_per_address are at least 1: otherwise no user could log in"
        );
        let login = self.login_timeout.map_or(defaults.login, |span| span.0);
        anyhow::ensure!(!login.is_zero(), "sql.login_timeout is at least 1ms: otherwise no user could log in");
        for name in &self.administrators {
            let is_known = users.is_empty() || users.contains_key(name);
            anyhow::ensure!(is_known, "sql.administrators names {name}, which is not among sql.users");
        }
        Ok(WireOptions { listen, trust: self.trust, tls, connections_max, connections_per_address, login, ..defaults })
    }

    fn engine(&self, data: &Path) -> anyhow::Result<EngineOptions> {
        let defaults = EngineOptions::default();
        let time = |span: Option<Span>| span.map_or(Duration::ZERO, |span| span.0);
        let memory = self.memory.map_or(defaults.query_bytes, Bytes::as_usize);
        anyhow::ensure!(memory >= MEMORY_MIN, "sql.memory is less than 16MiB");
        anyhow::ensure!(self.threads != Some(0), "sql.threads is at least 1");
        Ok(EngineOptions {
            threads: self.threads.unwrap_or(defaults.threads),
            statement: time(self.statement_timeout),
            idle_in_transaction: time(self.idle_in_transaction_session_timeout),
            query_bytes: memory,
            spill: Some(SpillOptions {
                folder: self.spill.clone().unwrap_or_else(|| data.join("sql-spill")),
                bytes: self.spill_max.map_or(SPILL_MAX, |bytes| bytes.0),
            }),
            tuple_mover: if self.convert.unwrap_or(true) { defaults.tuple_mover } else { None },
            external: self.external.clone(),
            ..defaults
        })
    }

    /// The options of the service in a node with this data directory. Errors: a setting that cannot work, by its name.
    pub fn options(&self, data: &Path) -> anyhow::Result<(WireOptions, EngineOptions)> {
        Ok((self.wire()?, self.engine(data)?))
    }

    /// Starts the service over the node's store.
    pub fn start(&self, node: &RunningProduction) -> anyhow::Result<Running> {
        let (wire, options) = self.options(node.data())?;
        let wire = WireOptions { admission: Arc::clone(node.admission()), ..wire };
        let virtual_tables = history(Some(node.audit()), node.masker());
        let options = EngineOptions { virtual_tables, audit: Some(Arc::clone(node.audit())), ..options };
        if options.query_bytes < SMALL_BYTES {
            device::heap::give_back_soon();
        }
        let engine = Engine::new(node.store().clone(), options).context("SQL cannot start")?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WIRE_THREADS)
            .thread_name("sql")
            .thread_stack_size(sql::STACK_BYTES)
            .enable_all()
            .build()
            .context("the runtime of SQL cannot start")?;
        announce(node, &engine, &runtime);
        // From another runtime's thread: spawned there, and waited for here.
        let (answer, started) = std::sync::mpsc::channel();
        let (serving, guard) = (Arc::clone(&engine), Arc::clone(node.guard()));
        runtime.spawn(async move { answer.send(Server::start(serving, guard, wire).await) });
        match started.recv().context("SQL cannot start").and_then(|server| Ok(server?)) {
            Ok(server) => {
                tracing::info!(address = %server.address(), "sql");
                listeners::renew_with(node, server.renewal(), "sql");
                Ok(Running { server, engine, runtime })
            }
            Err(error) => {
                // A runtime must not be dropped on a thread of another one.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }
}

/// From now on sessions can listen to new messages.
fn announce(node: &RunningProduction, engine: &Arc<Engine>, runtime: &tokio::runtime::Runtime) {
    let announcing = Arc::new(Announcing::new(Arc::clone(&node.engine().message_log)));
    engine.set_message_source(Arc::clone(&announcing) as Arc<dyn MessageSource>);
    let is_masked = announcing::is_type_masked(node.masker());
    let _entered = runtime.enter();
    node::task::session("sql of new messages", announcing.run(Arc::clone(engine), is_masked));
}

/// The service, until it is stopped.
#[derive(Debug)]
pub struct Running {
    server: Server,
    engine: Arc<Engine>,
    runtime: tokio::runtime::Runtime,
}

impl Running {
    /// Where its figures come from.
    pub fn source(&self) -> Box<node_metrics::Source> {
        crate::metrics::sql(Arc::clone(self.server.figures()))
    }

    /// What the console is lent.
    pub fn lent(&self) -> Arc<dyn web_console::SqlSource> {
        Arc::new(lending::LentSql(self.server.reader()))
    }

    /// Ends all connections, and the thread that moves rows to the column store. Queries under way are cancelled.
    pub async fn stop(self) {
        self.server.stop().await;
        let engine = self.engine;
        // Waits for a move under way, a second or two: not on a thread of the runtime. It only fails if the thread panicked.
        let _ = tokio::task::spawn_blocking(move || engine.close()).await;
        self.runtime.shutdown_background();
    }
}

/// Reads every row of every table of a store that no other code uses; a program without SQL returns none.
pub fn read_tables(store: store::Store) -> anyhow::Result<Option<Vec<TableReport>>> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().thread_stack_size(sql::STACK_BYTES).enable_all().build()?;
    // It only reads.
    let options = EngineOptions { tuple_mover: None, ..EngineOptions::default() };
    Ok(Some(runtime.block_on(sql::engine::read_tables(store, options))?))
}

/// `terrace sql verifier`: reads a password and prints its verifier.
pub fn verifier() -> anyhow::Result<ExitCode> {
    let password = crate::identity::new_password()?;
    anyhow::ensure!(!password.is_empty(), "the password is empty: give it on standard input");
    println!("{}", Verifier::of(&password)?);
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Settings {
        toml::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    #[test]
    fn settings_that_would_let_nobody_or_anybody_in_are_refused() {
        let verifier = Verifier::of("secret").expect("there is randomness").to_string();
        for (text, refused) in [
            (format!("users = {{ ann = '{verifier}' }}"), None),
            ("users = { ann = 'secret' }".to_owned(), Some("terrace sql verifier")),
            (format!("users = {{ ann = '{verifier}' }}\ncertificate = 'c.pem'"), Some("go together")),
            (format!("users = {{ ann = '{verifier}' }}\ntls_required = true"), Some("needs a certificate")),
            (format!("users = {{ ann = '{verifier}' }}\nconnections = 0"), Some("at least 1")),
            (format!("users = {{ ann = '{verifier}' }}\nlogin_timeout = '0s'"), Some("at least 1ms")),
            (format!("users = {{ ann = '{verifier}' }}\nadministrators = ['bob']"), Some("which is not among")),
        ] {
            match (settings(&text).wire(), refused) {
                (Ok(_), None) => {}
                (Err(error), Some(why)) => assert!(format!("{error:#}").contains(why), "{error:#}: {text}"),
                (answer, _) => panic!("{answer:?}: {text}"),
            }
        }
    }
}
