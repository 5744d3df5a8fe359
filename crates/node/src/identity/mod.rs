//! Who may do what on a node: roles and how they prove who they are.

pub mod scram;
