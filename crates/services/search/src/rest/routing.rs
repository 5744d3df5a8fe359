//! Which shard a document would lie in on a cluster. All documents of an index lie together, but a request that names another
//! shard than the document's does not find it, as on a cluster.

use serde_json::Value;

use crate::error::SearchError;
use crate::hash::murmur3;
use crate::index::SearchIndex;

/// Powers of two into which Elasticsearch can split an index at most.
const SPLITS: u32 = 10;

/// Shards that the settings of an index ask for. Its documents lie in one place all the same: there is one node.
pub(super) fn shards_of(index: &SearchIndex) -> u64 {
    let value = index.setting("index.number_of_shards");
    value.as_ref().and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// The shard of a routing, in an index with so many shards and routing shards.
fn shard(routing: &str, shards: u64, routing_shards: u64) -> u64 {
    let units: Vec<u8> = routing.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let hash = i64::from(murmur3(&units, 0) as i32);
    hash.rem_euclid(routing_shards as i64) as u64 / (routing_shards / shards).max(1)
}

/// Shards into which an index can be split: its setting, or Elasticsearch's default.
pub(super) fn routing_shards(index: &SearchIndex) -> u64 {
    let shards = shards_of(index);
    let setting = index.setting("index.number_of_routing_shards");
    let given = setting.as_ref().and_then(|value| value.as_str()).and_then(|text| text.parse().ok());
    given.filter(|given| *given >= shards).unwrap_or_else(|| {
        let bits = u64::BITS - (shards - 1).leading_zeros();
        shards << SPLITS.saturating_sub(bits).max(1)
    })
}

/// Whether a request with this routing looks for a document in the shard where a document with that routing lies.
fn is_same(index: &SearchIndex, id: &str, asked: Option<&str>, stored: Option<&str>) -> bool {
    let shards = shards_of(index);
    if shards <= 1 || asked == stored {
        return true;
    }
    let all = routing_shards(index);
    shard(asked.unwrap_or(id), shards, all) == shard(stored.unwrap_or(id), shards, all)
}

/// Whether a request with this routing finds a document with that one.
pub(super) fn finds(index: &SearchIndex, id: &str, asked: Option<&str>, stored: Option<&str>) -> bool {
    is_same(index, id, asked.filter(|routing| !routing.is_empty()), stored)
}

/// Whether there is a document of that id, which a request with this routing does not find. Errors: those of the store.
pub(super) fn is_elsewhere(index: &SearchIndex, id: &str, asked: Option<&str>) -> Result<bool, SearchError> {
    if shards_of(index) <= 1 {
        return Ok(false);
    }
    Ok(index.get(id)?.is_some_and(|(document, _)| !finds(index, id, asked, document.routing.as_deref())))
}

#[cfg(test)]
mod tests {
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
        assert_ne!(shard("1", 5, 5), shard("5", 5, 5));
    }
}
