//! Inbound services: a thin shell of sockets and files around the engine. One file per kind.

mod apart;
pub mod file;
pub mod mllp;
