//! Which request is answered by what: the paths and methods of the API.

use serde_json::json;

use super::api::{Answer, Api};
use super::message::{RestHandler, RestMethod, RestRequest, RestResponse};
use super::{
    admin, aliases, bulk, by_query, cat, cluster, documents, maintenance, nodes, searches, task_requests, templates,
};
use crate::error::SearchError;
use crate::indices::TemplateKind;

impl Api {
    fn route(&self, request: &RestRequest) -> Answer {
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        let first = path.first().copied().unwrap_or_default();
        let answer = match first {
            "" | "_cluster" | "_nodes" | "_tasks" => self.of_cluster(request, &path),
            "_cat" => cat::answer(self, request, &path[1..]).map(Some),
            "_index_template" | "_component_template" | "_template" => self.of_templates(request, &path),
            _ => self.of_indices(request, &path),
        };
        match answer {
            Ok(Some(response)) => Ok(response),
            Ok(None) => Err(no_route(request)),
            Err(error) => Err(error),
        }
    }

    fn of_cluster(&self, request: &RestRequest, path: &[&str]) -> Result<Option<RestResponse>, SearchError> {
        use RestMethod::{Get, Head, Post, Put};
        Ok(Some(match (request.method, path) {
            (Get | Head, []) => cluster::info(self),
            (Get | Head, ["_cluster", "health"]) => cluster::health(self, request, None)?,
            (Get | Head, ["_cluster", "health", names]) => cluster::health(self, request, Some(names))?,
            (Get, ["_cluster", "settings"]) => cluster::settings(self, request)?,
            (Put, ["_cluster", "settings"]) => cluster::put_settings(self, request)?,
            (Get, ["_cluster", "state", rest @ ..]) => cluster::state(self, rest)?,
            (Get, ["_cluster", "stats", ..]) => cluster::stats(self)?,
            (Get, ["_cluster", "pending_tasks"]) => RestResponse::json(200, json!({"tasks": []})),
            (Get, ["_nodes", rest @ ..]) => nodes::answer(self, rest)?,
            (Get, ["_tasks"]) => task_requests::list(self, request)?,
            (Get, ["_tasks", id]) => task_requests::get(self, request, id)?,
            (Post, ["_tasks", "_cancel"]) => task_requests::cancel(self, request, None)?,
            (Post, ["_tasks", id, "_cancel"]) => task_requests::cancel(self, request, Some(id))?,
            _ => return Ok(None),
        }))
    }

    fn of_templates(&self, request: &RestRequest, path: &[&str]) -> Result<Option<RestResponse>, SearchError> {
        use RestMethod::{Delete, Get, Head, Post, Put};
        let kind = match path[0] {
            "_index_template" => TemplateKind::Index,
            "_component_template" => TemplateKind::Component,
            _ => TemplateKind::Legacy,
        };
        Ok(Some(match (request.method, &path[1..]) {
            (Get, []) => templates::get(self, request, kind, None)?,
            (Get, [name]) => templates::get(self, request, kind, Some(name))?,
            (Head, [name]) => templates::exists(self, kind, name)?,
            (Put | Post, [name]) => templates::put(self, request, kind, name)?,
            (Delete, [name]) => templates::delete(self, kind, name)?,
            _ => return Ok(None),
        }))
    }

    fn of_indices(&self, request: &RestRequest, path: &[&str]) -> Result<Option<RestResponse>, SearchError> {
        if let Some(answer) = self.of_documents(request, path)? {
            return Ok(Some(answer));
        }
        if let Some(answer) = self.of_searches(request, path)? {
            return Ok(Some(answer));
        }
        if let Some(answer) = self.by_query(request, path)? {
            return Ok(Some(answer));
        }
        use RestMethod::{Delete, Get, Head, Post, Put};
        Ok(Some(match (request.method, path) {
            (Put, [index]) if !index.starts_with('_') => admin::create(self, request, index)?,
            (Delete, [index]) if !index.starts_with('_') || *index == "_all" => admin::delete(self, request, index)?,
            (Head, [index]) => admin::exists(self, request, index)?,
            (Get, [index]) if !index.starts_with('_') || *index == "_all" => admin::get(self, request, index)?,
            (Get, ["_mapping"]) => admin::mapping(self, request, "_all")?,
            (Get, [index, "_mapping"]) => admin::mapping(self, request, index)?,
            (Put | Post, [index, "_mapping"] | [index, "_mappings"]) => admin::put_mapping(self, request, index)?,
            (Get, ["_mapping", "field", fields]) => admin::field_mapping(self, request, "_all", fields)?,
            (Get, [index, "_mapping", "field", fields]) => admin::field_mapping(self, request, index, fields)?,
            (Get, ["_settings"]) => admin::settings(self, request, "_all", None)?,
            (Get, ["_settings", name]) => admin::settings(self, request, "_all", Some(name))?,
            (Get, [index, "_settings"]) => admin::settings(self, request, index, None)?,
            (Get, [index, "_settings", name]) => admin::settings(self, request, index, Some(name))?,
            (Put, ["_settings"]) => admin::put_settings(self, request, "_all")?,
            (Put, [index, "_settings"]) => admin::put_settings(self, request, index)?,
            (Post, [index, "_open"]) => admin::open_or_close(self, request, index, false)?,
            (Post, [index, "_close"]) => admin::open_or_close(self, request, index, true)?,
            (Post, ["_aliases"]) => aliases::update(self, request)?,
            (Get, ["_alias"] | ["_aliases"]) => aliases::get(self, request, "_all", None)?,
            (Get | Head, ["_alias", name]) => aliases::get(self, request, "_all", Some(name))?,
            (Get, [index, "_alias"]) => aliases::get(self, request, index, None)?,
            (Get | Head, [index, "_alias", name]) => aliases::get(self, request, index, Some(name))?,
            (Put | Post, [index, "_alias" | "_aliases", name]) => aliases::put(self, request, index, name)?,
            (Delete, [index, "_alias" | "_aliases", name]) => aliases::delete(self, index, name)?,
            (Get | Post, ["_refresh"]) => maintenance::refresh(self, request, "_all")?,
            (Get | Post, [index, "_refresh"]) => maintenance::refresh(self, request, index)?,
            (Get | Post, ["_flush"]) => maintenance::flush(self, request, "_all")?,
            (Get | Post, [index, "_flush"]) => maintenance::flush(self, request, index)?,
            (Post, ["_forcemerge"]) => maintenance::force_merge(self, request, "_all")?,
            (Post, [index, "_forcemerge"]) => maintenance::force_merge(self, request, index)?,
            (Post, ["_cache", "clear"]) => maintenance::clear_cache(self, request, "_all")?,
            (Post, [index, "_cache", "clear"]) => maintenance::clear_cache(self, request, index)?,
            (Get, ["_stats"]) => maintenance::stats(self, request, "_all", None)?,
            (Get, ["_stats", metric]) => maintenance::stats(self, request, "_all", Some(metric))?,
            (Get, [index, "_stats"]) => maintenance::stats(self, request, index, None)?,
            (Get, [index, "_stats", metric]) => maintenance::stats(self, request, index, Some(metric))?,
            (Get | Post, ["_analyze"]) => maintenance::analyze(self, request, None)?,
            (Get | Post, [index, "_analyze"]) => maintenance::analyze(self, request, Some(index))?,
            (Get | Post, ["_field_caps"]) => maintenance::field_caps(self, request, "_all")?,
            (Get | Post, [index, "_field_caps"]) => maintenance::field_caps(self, request, index)?,
            (Get, ["_resolve", "index", names]) => aliases::resolve(self, request, names)?,
            _ => return Ok(None),
        }))
    }

    fn by_query(&self, request: &RestRequest, path: &[&str]) -> Result<Option<RestResponse>, SearchError> {
        use RestMethod::Post;
        Ok(Some(match (request.method, path) {
            (Post, [index, "_delete_by_query"]) => by_query::delete(self, request, index)?,
            (Post, [index, "_update_by_query"]) => by_query::update(self, request, index)?,
            (Post, ["_reindex"]) => by_query::reindex(self, request)?,
            (Post, ["_delete_by_query" | "_update_by_query" | "_reindex", id, "_rethrottle"]) => {
                task_requests::rethrottle(self, request, id)?
            }
            _ => return Ok(None),
        }))
    }

    fn of_searches(&self, request: &RestRequest, path: &[&str]) -> Result<Option<RestResponse>, SearchError> {
        use RestMethod::{Delete, Get, Post};
        Ok(Some(match (request.method, path) {
            (Get | Post, ["_search"]) => searches::search(self, request, None)?,
            (Get | Post, ["_search", "scroll"]) => searches::scroll(self, request, None)?,
            (Get | Post, ["_search", "scroll", id]) => searches::scroll(self, request, Some(id))?,
            (Delete, ["_search", "scroll"]) => searches::clear_scroll(self, request, None)?,
            (Delete, ["_search", "scroll", ids]) => searches::clear_scroll(self, request, Some(ids))?,
            (Post, [index, "_pit"]) => searches::open_point_in_time(self, request, index, "id")?,
            (Post, [index, "_search", "point_in_time"]) => {
                searches::open_point_in_time(self, request, index, "pit_id")?
            }
            (Delete, ["_pit"] | ["_search", "point_in_time"]) => searches::close_point_in_time(self, request, false)?,
            (Get, ["_search", "point_in_time", "_all"]) => searches::points_in_time(self),
            (Delete, ["_search", "point_in_time", "_all"]) => searches::close_point_in_time(self, request, true)?,
            (Get | Post, [index, "_search"]) => searches::search(self, request, Some(index))?,
            (Get | Post, ["_msearch"]) => searches::multi_search(self, request, None)?,
            (Get | Post, [index, "_msearch"]) => searches::multi_search(self, request, Some(index))?,
            (Get | Post, ["_count"]) => searches::count(self, request, "_all")?,
            (Get | Post, [index, "_count"]) => searches::count(self, request, index)?,
            (Get | Post, ["_validate", "query"]) => searches::validate(self, request, "_all")?,
            (Get | Post, [index, "_validate", "query"]) => searches::validate(self, request, index)?,
            _ => return Ok(None),
        }))
    }

    fn of_documents(&self, request: &RestRequest, path: &[&str]) -> Result<Option<RestResponse>, SearchError> {
        use RestMethod::{Delete, Get, Head, Post, Put};
        Ok(Some(match (request.method, path) {
            (Post | Put, ["_bulk"]) => bulk::answer(self, request, None)?,
            (Post | Put, [index, "_bulk"]) => bulk::answer(self, request, Some(index))?,
            (Get | Post, ["_mget"]) => documents::multi_get(self, request, None)?,
            (Get | Post, [index, "_mget"]) => documents::multi_get(self, request, Some(index))?,
            (Post, [index, "_doc"]) => documents::index(self, request, index, None)?,
            (Put | Post, [index, "_doc", id]) => documents::index(self, request, index, Some(id))?,
            (Put | Post, [index, "_create", id]) => documents::create(self, request, index, id)?,
            (Get | Head, [index, "_doc", id]) => documents::get(self, request, index, id)?,
            (Get | Head, [index, "_source", id]) => documents::source(self, request, index, id)?,
            (Delete, [index, "_doc", id]) => documents::delete(self, request, index, id)?,
            (Post, [index, "_update", id]) => documents::update(self, request, index, id)?,
            _ => return Ok(None),
        }))
    }
}

/// No part of the API has this path and method.
fn no_route(request: &RestRequest) -> SearchError {
    let (path, method) = (request.path.join("/"), format!("{:?}", request.method).to_uppercase());
    SearchError::argument(format!("no handler found for uri [/{path}] and method [{method}]"))
}

impl RestHandler for Api {
    fn respond(&self, request: &RestRequest) -> RestResponse {
        self.contexts.close_old();
        let _listed = self.tasks.begin_request(request);
        let mut response = self.route(request).unwrap_or_else(RestResponse::from);
        response.headers.extend(request.opaque_id.clone().map(|id| ("X-Opaque-Id", id)));
        response
    }

    fn is_inline(&self) -> bool {
        self.indices.is_inline()
    }
}
