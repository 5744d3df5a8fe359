//! Marks of the documents in `top_hits`, until the caller puts the documents in their place.
//!
//! Invariant: no client can make one. A response holds texts and names that clients choose (`meta`, names, keys of buckets), and a
//! mark of theirs would be replaced by a document that they may not see. So a mark begins with a secret of this process.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::LazyLock;

use serde_json::Value;

/// The name that it has in a hit.
pub(crate) const SEQ_REF: &str = "_seq_ref";

/// The system seeds the hasher, and its key cannot be found from what it returns.
static SECRET: LazyLock<String> = LazyLock::new(|| {
    let drawn = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}:", drawn(), drawn())
});

/// The mark of the document with a sequence number.
pub(crate) fn seq_ref(seq: u64) -> Value {
    Value::String(format!("{}{seq}", *SECRET))
}

/// The sequence number of a mark; `None` if the value is no mark of this process.
pub(crate) fn seq_of(mark: &Value) -> Option<u64> {
    mark.as_str()?.strip_prefix(SECRET.as_str())?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_was_made_here_is_a_mark() {
        assert_eq!(seq_of(&seq_ref(7)), Some(7));
        for no in [json!(7), json!("7"), json!(":7"), json!({"a": 7}), json!(format!("{:032x}:7", 0))] {
            assert_eq!(seq_of(&no), None, "{no}");
        }
    }
}
