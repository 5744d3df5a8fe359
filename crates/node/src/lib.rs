//! A node: the parts that all services in one process on one data directory share.
//!
//! ```text
//!   data directory   lock, location (where journal, images and pages lie), opening (the store), status, timekeeping (its clock)
//!        |
//!        |          encryption: its keys, where it is encrypted
//!   stopped, maintenance    the same of a node that does not run; verify, backup, restore
//!   backups                 those by schedule: when, how many, what is known of the last
//!
//!   control socket   one line in, one line of JSON out            trouble   what keeps a node from its work, and what to do
//!   audit            who did what, chained, in the store          interpreters   records of several owners in one store
//!
//!   listener --accept--> Door of a service --Permit--> connection
//!                             |                  |        admission: which are accepted, which end for a newcomer,
//!                             +---- Admission ---+        how much of an unfinished frame may be read, what was refused
//!                                       |
//!                                  Descriptors            what the process may have open, and what is left to storage
//!
//!   connections   every one that is open, of every port and those opened by the node: listed, counted, closed from outside
//!   socket        the options of all; shared_socket: one that a session reads while others see whether its peer is there still
//!
//!   service manager --sockets--> listeners                 service_manager: activation, readiness, status, watchdog
//!   schedule    when a service or an operation works, by the clocks of a zone
//! ```
//!
//! Invariants: one process at a time uses a data directory; nothing is opened or made before its place is recorded
//! there. A socket from outside is bounded, by service and by address, before a byte of it is read; descriptors are
//! reserved for storage, whatever the network load; refusals are counted, and logged in few lines.
//!
//! It deliberately knows no protocol, and not the meaning of a service's records and rows: its own are those of the audit. A
//! service passes in the interpreter of its records and the requests that it handles, and reports when a connection is proven.

#![forbid(unsafe_code)]

pub mod admission;
pub mod audit;
pub mod backups;
mod bounded_entries;
pub mod certificate;
pub mod clock;
pub mod connections;
pub mod control;
pub mod descriptors;
pub mod encryption;
pub mod error;
pub mod identity;
pub mod interpreters;
pub mod location;
pub mod lock;
pub mod maintenance;
pub mod media;
pub mod name_lookup;
pub mod opening;
pub mod peers;
pub mod places;
pub mod profiling;
pub mod rewriting;
pub mod schedule;
pub mod service_manager;
mod shared_socket;
pub mod socket;
pub mod status;
mod stoppable;
pub mod stopped;
pub mod task;
pub mod timekeeping;
pub mod tls;
pub mod trouble;

pub use admission::{Admission, AdmissionStatus, Bounds, Door, DoorStatus, Permit, Policy, Reason};
pub use audit::{Audit, AuditSettings};
pub use clock::Clock;
pub use connections::{ConnectionLine, ConnectionRegistry, CountedIo, OpenConnection, OutgoingConnection};
pub use descriptors::Descriptors;
pub use error::NodeError;
pub use interpreters::Interpreters;
pub use location::{Location, Locations};
pub use lock::DirectoryLock;
pub use maintenance::NodeFolder;
pub use media::{FarInUse, Media, MediumInUse, ModelInUse};
pub use opening::NodeStore;
pub use peers::Network;
pub use places::{NoPlace, RolePlace, RolePlaces};
pub use schedule::{Schedule, ScheduleState};
pub use shared_socket::SharedSocket;
pub use tls::{Renewal, ServerFiles, TlsError, TlsInForce, TlsOptions};
