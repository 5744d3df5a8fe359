//! A load of HL7 messages, and the node under test: used by `terrace demo` and by the measurements of `bench`.
//!
//! ```text
//! t4        the published HL7 messaging workload: a node, 128 senders, 4 receivers, every delivery checked
//! load      senders and receivers over real sockets, and the account of deliveries
//! messages  HL7 messages of realistic size from a seed
//! node      the node under test, a process of its own
//! interrupt Ctrl-C during any of them
//! machine, process, processors, histogram   what it ran on, what it used, how busy all was, how long it took
//! plot, table                        how figures look
//! ```
//!
//! Invariants: the node under test runs as its user would run it, the real program over real sockets on a real file; the
//! checks share no code with the engine; a result says whether its medium was real and what it keeps when the power
//! goes; everything random comes from a printed seed.
//!
//! Not here: the other measurements (crate `bench`, with its own program), and the assembly of a node (the binary's).
#![forbid(unsafe_code)]

pub mod histogram;
pub mod interrupt;
pub mod load;
pub mod machine;
pub mod messages;
pub mod node;
pub mod plot;
pub mod process;
pub mod processors;
pub mod t4;
pub mod table;
