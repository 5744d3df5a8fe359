//! Batches: splitting files that hold several messages (FHS, BHS, BTS, FTS).
