//! Tests of the server with real sockets: what clients of any kind, also wrong and hostile ones, get from it.
//!
//! ```text
//!   client.rs   a client of raw bytes; it shares no code with the server
//!   addresses.rs from where connections may come
//!   scripted.rs a server of raw bytes that offers less, or misbehaves
//!   using.rs    what tests of this crate's own client use
//!   rig.rs      a server on a unix socket and on TCP; a device that records, holds back and has holes
//! ```

mod addresses;
mod client;
mod commands;
mod crowd;
mod data;
mod device;
mod endings;
mod epochs;
mod faults;
mod foreign;
mod hoarding;
mod limits;
mod negotiation;
mod owners;
mod reconnect;
mod rig;
mod rights;
mod scripted;
mod secured;
mod security;
mod using;
