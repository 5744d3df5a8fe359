//! Who may do what, from outside: real requests over the control socket, SQL, HTTP (search, metrics) and NBD to one real node.
//!
//! ```text
//!   Action::ALL --ways (an exhaustive match)--> real requests --> matrix   role x action x port
//!   the ports' own lists ----------------------------------------> walk     nothing is answered without a right
//!   identities x ports -------------------------------------------> logins  who gets in, what is told, what is recorded
//!   one service of two --------------------------------------------> partial  is searched as if there were no other
//!   two nodes that differ in one masked value --------------------> masked  both answer the same
//! ```
//!
//! Which connections are open, and the end of one, is `connections`: over the same ports.
//! The rights of one port in detail are tests of its crate.

mod connections;
mod logins;
mod masked;
mod matrix;
mod partial;
mod ports;
mod rig;
mod walk;
mod ways;
