//! Documents and searches against a node: the published experiment with esrally, and the node killed under bulks.
//!
//! ```text
//! command    `terrace bench rally` and `terrace bench kill --search`
//! measure    a node for each medium and number of races, in turns
//!   media      SATA, NVMe, App Direct: modelled, or real folders
//!   esrally    the real esrally, several races at a time, each in a `namespace`
//!   builtin    the same operations by threads of this process
//! in_process the engine itself in this process, without a socket: what a medium is worth to it
//! track      mapping, queries and `corpus`, documents from a seed
//! kill       kill -9 under bulks: every acknowledged document is there with its last version
//! report, figure                        JSON and text; the published figure as SVG
//! ```
//!
//! Invariants: the node under test runs as its user would run it, the real program over a real socket; a result states whether its
//! medium was real, and its durability; everything random comes from a seed that is reported.
//!
//! Not here: other engines (scripts/bench-search-peers.sh), and client libraries (scripts/test-search-clients.sh).
#![forbid(unsafe_code)]

pub mod builtin;
pub mod client;
pub mod command;
pub mod corpus;
pub mod esrally;
pub mod figure;
pub mod in_process;
pub mod kill;
pub mod measure;
pub mod media;
pub mod namespace;
pub mod race;
pub mod report;
pub mod track;
