//! How old a price may be: for lists of prices and for plans.

/// Prices that are older than so many days are told.
pub const OLD_DAYS: u64 = 90;
/// Prices that are older than so many days are refused, unless it is said that they may be.
pub const STALE_DAYS: u64 = 365;
