//! Integration tests: the model of the page cache beside the real one.

mod page_cache;
