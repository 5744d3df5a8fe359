//! Inbound services: a thin shell of sockets and files around the engine. One file per kind.

mod batch_frame;
pub mod file;
pub mod mllp;
