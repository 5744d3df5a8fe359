//! [`IndexShards`]: the shards into which the settings of an index divide its documents, by Elasticsearch's hash of their routing.
//!
//! All shards lie together in one index of the library, as there is one node (ADR 0020). A request that names another shard than the
//! document's does not find it, as on a cluster. Pure: settings in, numbers out.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::hash::murmur3;

/// Powers of two into which Elasticsearch can split an index at most.
const SPLITS: u32 = 10;

/// See the head comment of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexShards {
    /// How many.
    pub count: u64,
    /// Into how many the index can be split: its setting, or Elasticsearch's default.
    pub routing: u64,
}

impl IndexShards {
    /// Those of an index with these settings, flat.
    pub fn of(settings: &BTreeMap<String, Value>) -> IndexShards {
        let number = |name: &str| settings.get(name).and_then(Value::as_str)?.parse::<u64>().ok();
        let count = number("index.number_of_shards").filter(|count| *count > 0).unwrap_or(1);
        let given = number("index.number_of_routing_shards").filter(|given| *given >= count);
        let routing = given.unwrap_or_else(|| {
            let bits = u64::BITS - (count - 1).leading_zeros();
            count << SPLITS.saturating_sub(bits).max(1)
        });
        IndexShards { count, routing }
    }

    /// The shard of a routing.
    fn number(&self, routing: &str) -> u64 {
        let units: Vec<u8> = routing.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let hash = i64::from(murmur3(&units, 0) as i32);
        hash.rem_euclid(self.routing as i64) as u64 / (self.routing / self.count).max(1)
    }

    /// Whether a request with a routing looks for a document where one with the stored routing lies.
    pub fn finds(&self, id: &str, asked: Option<&str>, stored: Option<&str>) -> bool {
        let asked = asked.filter(|routing| !routing.is_empty());
        self.count <= 1 || asked == stored || self.number(asked.unwrap_or(id)) == self.number(stored.unwrap_or(id))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hashes_are_those_of_elasticsearch() {
        // From Elasticsearch's Murmur3HashFunctionTests.
        for (text, hash) in
            [("hell", 0x5a0c_b7c3_u32), ("hello", 0xd7c3_1989), ("hello w", 0x22ab_2984), ("hello wo", 0xdf0c_a123)]
        {
            let units: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
            assert_eq!(murmur3(&units, 0), hash, "{text}");
        }
    }

    #[test]
    fn a_request_finds_what_lies_in_its_shard() {
        let shards = |settings: Value| IndexShards::of(&serde_json::from_value(settings).expect("settings"));
        let five = shards(json!({"index.number_of_shards": "5"}));
        assert_eq!((five.count, five.routing), (5, 640));
        assert_ne!(five.number("1"), five.number("5"));
        assert!(five.finds("1", None, None) && five.finds("1", Some("5"), Some("5")));
        assert!(!five.finds("1", Some("5"), None) && !five.finds("1", None, Some("5")));
        assert!(five.finds("1", Some(""), None), "an empty routing is none");
        let one = shards(json!({}));
        assert!(one.count == 1 && one.finds("1", Some("5"), None));
    }
}
