//! Measurements of Terrace from outside, with the published figures beside them. The program is `terrace-lab`.
//!
//! ```text
//! access    times of refusals, the cost of rights, reads in the audit
//! matrix    the published HL7 messaging workload (`workload::t4`) once for each medium of the journal
//! adversary hostile clients, careless statements and huge messages against one node, while others send as ever
//! analytics TPC-H over row groups: cold, warm, caches smaller and larger than the data, beside plain DataFusion
//! console_cost a console that is open and metrics that are scraped, beside messages; many tabs beside an idle node
//! profile_cost what recording a profile costs: messages and queries, in turns with and without
//! encryption what encryption at rest costs: messages, puts and queries, in turns with and without
//! kill      the node killed under load, again and again, and what that left
//! persist   what it costs to make bytes persistent: stores by threads, modelled platforms, the journal
//! sqllogic  SQLite's sqllogictest scripts over the SQL wire, and why what fails does
//! soak      messages and SQL for a long time: memory, descriptors and disk stay flat
//! put       durable puts into the store by 1, 16 and 128 committers, beside the bare journal and the raw medium
//! under_load a node with a paced load, and something else done to it meanwhile
//! postgres  a small client of PostgreSQL's protocol
//! turns, statistics                  two sides in turns, and the interval of their ratio
//! target                             whether figures are what was wanted
//! ```
//!
//! Invariants: the node under test runs as its user would run it, the real program over real sockets on a real file;
//! the checks share no code with the engine; a result states whether its medium was real and its durability; everything
//! random comes from a printed seed.
//!
//! Not here: micro-benchmarks, and the assembly of a node (the binary's).
#![forbid(unsafe_code)]

pub mod access;
pub mod adversary;
pub mod analytics;
pub mod console_cost;
pub mod encryption;
pub mod kill;
pub mod matrix;
mod medium_probe;
pub mod persist;
pub mod postgres;
pub mod profile_cost;
pub mod put;
pub mod soak;
pub mod sqllogic;
mod statistics;
pub mod target;
mod turns;
mod under_load;
