//! A request for each route, as a client sends it: for tests that walk all of them from outside.
//!
//! The test here looks that no route is without one.

use super::message::RestMethod::{self, Delete, Get, Head, Post, Put};

/// Method, target and body of a request for each route, about the index `i`.
pub const ROUTE_EXAMPLES: &[(RestMethod, &str, &str)] = &[
    (Get, "/", ""),
    (Get, "/_security/_authenticate", ""),
    (Get, "/_cluster/health", ""),
    (Get, "/_cluster/settings", ""),
    (Put, "/_cluster/settings", r#"{"persistent":{}}"#),
    (Get, "/_cluster/state", ""),
    (Get, "/_cluster/stats", ""),
    (Get, "/_cluster/pending_tasks", ""),
    (Get, "/_nodes", ""),
    (Get, "/_tasks?detailed", ""),
    (Get, "/_tasks/x:1", ""),
    (Post, "/_tasks/_cancel", ""),
    (Post, "/_reindex/x:1/_rethrottle?requests_per_second=1", ""),
    (Get, "/_index_template", ""),
    (Put, "/_index_template/t", r#"{"index_patterns":["zz"]}"#),
    (Delete, "/_index_template/t", ""),
    (Get, "/_cat", ""),
    (Get, "/_cat/indices", ""),
    (Get, "/_cat/indices/i", ""),
    (Get, "/_cat/count", ""),
    (Get, "/_cat/count/i", ""),
    (Get, "/_cat/shards", ""),
    (Get, "/_cat/segments", ""),
    (Get, "/_cat/aliases", ""),
    (Get, "/_cat/health", ""),
    (Get, "/_cat/nodes", ""),
    (Get, "/_cat/templates", ""),
    (Get, "/_cat/master", ""),
    (Get, "/_cat/tasks?detailed", ""),
    (Get, "/_cat/plugins", ""),
    (Put, "/made", ""),
    (Delete, "/i", ""),
    (Head, "/i", ""),
    (Get, "/i", ""),
    (Get, "/_all", ""),
    (Get, "/i/_mapping", ""),
    (Get, "/_mapping", ""),
    (Put, "/i/_mapping", r#"{"properties":{}}"#),
    (Get, "/i/_mapping/field/*", ""),
    (Get, "/i/_settings", ""),
    (Put, "/i/_settings", "{}"),
    (Post, "/i/_close", ""),
    (Post, "/i/_open", ""),
    (Post, "/_aliases", r#"{"actions":[{"add":{"index":"i","alias":"b"}}]}"#),
    (Get, "/i/_alias", ""),
    (Get, "/_alias", ""),
    (Put, "/i/_alias/b", ""),
    (Delete, "/i/_alias/b", ""),
    (Post, "/i/_refresh", ""),
    (Post, "/i/_flush", ""),
    (Post, "/i/_forcemerge", ""),
    (Post, "/i/_cache/clear", ""),
    (Get, "/i/_stats", ""),
    (Get, "/_stats", ""),
    (Get, "/i/_analyze", r#"{"text":"a"}"#),
    (Get, "/i/_field_caps?fields=*", ""),
    (Get, "/_field_caps?fields=*", ""),
    (Get, "/_resolve/index/*", ""),
    (Get, "/i/_search", ""),
    (Get, "/_search", ""),
    (Post, "/_search/scroll", r#"{"scroll_id":"x"}"#),
    (Delete, "/_search/scroll", r#"{"scroll_id":"x"}"#),
    (Post, "/i/_pit?keep_alive=1m", ""),
    (Delete, "/_pit", r#"{"id":"x"}"#),
    (Delete, "/_search/point_in_time/_all", ""),
    (Get, "/_search/point_in_time/_all", ""),
    (Post, "/_msearch", "{\"index\":\"i\"}\n{}\n"),
    (Get, "/i/_count", ""),
    (Get, "/i/_validate/query?explain", r#"{"query":{"match":{"colour":"red"}}}"#),
    (Post, "/i/_delete_by_query", r#"{"query":{"match_all":{}}}"#),
    (Post, "/i/_update_by_query", r#"{"query":{"match_all":{}}}"#),
    (Post, "/_reindex", r#"{"source":{"index":"i"},"dest":{"index":"copy"}}"#),
    (Post, "/_bulk", "{\"index\":{\"_index\":\"i\",\"_id\":\"9\"}}\n{}\n"),
    (Post, "/_mget", r#"{"docs":[{"_index":"i","_id":"1"}]}"#),
    (Post, "/i/_doc", "{}"),
    (Put, "/i/_create/8", "{}"),
    (Get, "/i/_doc/1", ""),
    (Get, "/i/_source/1", ""),
    (Delete, "/i/_doc/1", ""),
    (Post, "/i/_update/1?_source=true", r#"{"doc":{}}"#),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use node::identity::Caller;

    use super::*;
    use crate::rest::RestRequest;
    use crate::rest::routing::{Route, Routed};

    #[test]
    fn every_route_has_an_example() {
        let route = |(method, target, _): &(RestMethod, &str, &str)| {
            let path = target.split('?').next().unwrap_or_default();
            let request = RestRequest {
                method: *method,
                path: path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect(),
                parameters: BTreeMap::new(),
                body: bytes::Bytes::new(),
                caller: Caller::node(),
                opaque_id: None,
                cancelled: Arc::default(),
            };
            Routed::of(&request).unwrap_or_else(|| panic!("{target} has a route")).route
        };
        let found: Vec<Route> = ROUTE_EXAMPLES.iter().map(route).collect();
        let missing: Vec<Route> = Route::all().into_iter().filter(|route| !found.contains(route)).collect();
        assert!(missing.is_empty(), "no example asks for {missing:?}");
    }
}
