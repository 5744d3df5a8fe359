//! The engine's promises, kept by real nodes over real sockets; docs/faults.md lists which fault each test makes happen.
//!
//! Every test has a node of its own, in process, on a shelf of its choice, and talks to it as a sender, as a receiver, or
//! over the control socket. Nothing sleeps to wait for a state: `rig::until` looks until it has come about.

mod control;
mod crash;
mod delivery;
mod duplicates;
mod durable;
mod files;
mod framing;
mod logs;
mod order;
mod parts;
mod receiver;
mod receivers;
mod records;
mod refusals;
mod reload;
mod rig;
mod sender;
mod settings;
mod shelves;
mod tls;
