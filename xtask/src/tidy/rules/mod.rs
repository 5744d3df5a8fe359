//! The rules, one in each file. The tests of a rule have a case with a finding and a case without one.

pub(crate) mod architecture;
pub(crate) mod cycles;
pub(crate) mod documented;
pub(crate) mod faults;
pub(crate) mod head_comments;
pub(crate) mod layers;
pub(crate) mod links;
pub(crate) mod manifests;
pub(crate) mod markers;
pub(crate) mod quotes;
pub(crate) mod size;
pub(crate) mod spawns;
pub(crate) mod text;
pub(crate) mod types;
pub(crate) mod unsafety;
pub(crate) mod words;
