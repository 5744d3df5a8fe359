//! Which request is answered by what. Every request comes through [`Api::respond`]: its route, its rights, its handler.

use node::identity::Action;
use serde_json::json;

use super::api::{Answer, Api, AskedRequest};
use super::message::{RestHandler, RestMethod, RestRequest, RestResponse};
use super::routing::{BodyNeed, DocumentRoute, IndexRoute, NodeNeed, NodeRoute, Route, Routed, SearchRoute};
use super::{
    admin, aliases, audited, authenticated, bulk, by_query, cat, cluster, documents, maintenance, nodes, parameters,
    searches, task_requests, templates,
};
use crate::error::SearchError;
use crate::indices::TemplateKind;
use crate::rights::Asker;

/// Bytes of a body that names contexts or tasks, or is for a path that there is not.
const SMALL_BYTES: usize = 64 << 10;

impl Api {
    fn route(&self, request: &RestRequest) -> Answer {
        let routed = Routed::of(request);
        let none: (&str, &[Action]) = ("cluster:monitor/main", &[]);
        let (action, needs) = routed.map_or(none, |routed| (routed.route.action(), routed.route.index_needs()));
        let asker = self.asker(request, action, needs);
        asker.holds()?;
        let Some(routed) = routed else { return Err(no_route(request)) };
        parameters::check(request, routed.route)?;
        let with_source = parameters::with_source(request, routed.route)?;
        let request = AskedRequest { request: with_source.as_ref().unwrap_or(request), asker };
        audited::finish(self, &request, routed.route, self.answer(&request, &routed))
    }

    /// Errors: the caller has none of the rights that the route needs, or not on the index of a document.
    fn admitted(&self, asker: &Asker, routed: &Routed<'_>) -> Result<usize, SearchError> {
        asker.holds()?;
        match (routed.route.body_need(), routed.route.node_need()) {
            (BodyNeed::Node, NodeNeed::Right(action)) => asker.node(action)?,
            (BodyNeed::Some, _) => asker.some()?,
            (BodyNeed::Index, _) => self.indices.check_use(routed.names.unwrap_or_default(), asker)?,
            (BodyNeed::Small, _) | (BodyNeed::Node, NodeNeed::Login) => return Ok(SMALL_BYTES),
        }
        Ok(usize::MAX)
    }

    fn asker(&self, request: &RestRequest, action: &'static str, needs: &'static [Action]) -> Asker {
        Asker::new(&self.guard, request.caller.clone(), action, needs).recorded_in(self.audit.clone())
    }

    fn answer(&self, request: &AskedRequest<'_>, routed: &Routed<'_>) -> Answer {
        if let NodeNeed::Right(action) = routed.route.node_need() {
            request.asker.node(action)?;
            // It is all that the request needs.
            request.asker.record()?;
        }
        let answer = match routed.route {
            Route::Node(route) => self.of_node(request, route, routed),
            Route::Cat(route) => cat::answer(self, request, route, routed.names),
            Route::Index(route) => self.of_indices(request, route, routed),
            Route::Search(route) => self.of_searches(request, route, routed),
            Route::Document(route) => self.of_documents(request, route, routed),
        }?;
        // What was changed is changed; what was read is not shown to who may not read it any more.
        if routed.route.is_read() {
            request.asker.still()?;
        }
        Ok(answer)
    }

    fn of_node(&self, request: &AskedRequest<'_>, route: NodeRoute, routed: &Routed<'_>) -> Answer {
        use NodeRoute as Of;
        let (path, name) = (&request.path, routed.name);
        let kind = match path.first().map(String::as_str) {
            Some("_index_template") => TemplateKind::Index,
            Some("_component_template") => TemplateKind::Component,
            _ => TemplateKind::Legacy,
        };
        match route {
            Of::Info => Ok(cluster::info(self)),
            Of::Authenticate => Ok(authenticated::answer(request)),
            Of::Health => cluster::health(self, request, routed.names),
            Of::Settings => cluster::settings(self, request),
            Of::PutSettings => cluster::put_settings(self, request),
            Of::State => cluster::state(self, request, name.unwrap_or("_all"), routed.names.unwrap_or("_all")),
            Of::Stats => cluster::stats(self, request),
            Of::PendingTasks => Ok(RestResponse::json(200, json!({"tasks": []}))),
            Of::Nodes => nodes::answer((self, request), &path[1..].iter().map(String::as_str).collect::<Vec<_>>()),
            Of::Tasks => task_requests::list(self, request),
            Of::Task => task_requests::get(self, request, name.unwrap_or_default()),
            Of::CancelTask => task_requests::cancel(self, request, name),
            Of::Rethrottle => task_requests::rethrottle(self, request, name.unwrap_or_default()),
            Of::Templates if request.method == RestMethod::Head => {
                templates::exists(self, kind, name.unwrap_or_default())
            }
            Of::Templates => templates::get(self, request, kind, name),
            Of::PutTemplate => templates::put(self, request, kind, name.unwrap_or_default()),
            Of::DeleteTemplate => templates::delete(self, kind, name.unwrap_or_default()),
        }
    }

    fn of_indices(&self, request: &AskedRequest<'_>, route: IndexRoute, routed: &Routed<'_>) -> Answer {
        use IndexRoute as Of;
        let (names, name) = (routed.names.unwrap_or("_all"), routed.name);
        let other = name.unwrap_or_default();
        match route {
            Of::Create => admin::create(self, request, names),
            Of::Delete => admin::delete(self, request, names),
            Of::Exists => admin::exists(self, request, names),
            Of::Get => admin::get(self, request, names),
            Of::Mapping => admin::mapping(self, request, names),
            Of::PutMapping => admin::put_mapping(self, request, names),
            Of::FieldMapping => admin::field_mapping(self, request, names, other),
            Of::Settings => admin::settings(self, request, names, name),
            Of::PutSettings => admin::put_settings(self, request, names),
            Of::Open => admin::open_or_close(self, request, names, false),
            Of::Close => admin::open_or_close(self, request, names, true),
            Of::UpdateAliases => aliases::update(self, request),
            Of::Aliases => aliases::get(self, request, names, name),
            Of::PutAlias => aliases::put(self, request, names, other),
            Of::DeleteAlias => aliases::delete(self, request, names, other),
            Of::Refresh => maintenance::refresh(self, request, names),
            Of::Flush => maintenance::flush(self, request, names),
            Of::ForceMerge => maintenance::force_merge(self, request, names),
            Of::ClearCache => maintenance::clear_cache(self, request, names),
            Of::Stats => maintenance::stats(self, request, names, name),
            Of::Analyze => maintenance::analyze(self, request, routed.names.or(request.parameter("index"))),
            Of::FieldCaps => maintenance::field_caps(self, request, names),
            Of::Resolve => aliases::resolve(self, request, names),
        }
    }

    fn of_searches(&self, request: &AskedRequest<'_>, route: SearchRoute, routed: &Routed<'_>) -> Answer {
        use SearchRoute as Of;
        let names = routed.names.unwrap_or("_all");
        match route {
            Of::Search => searches::search(self, request, routed.names),
            Of::Scroll => searches::scroll(self, request, routed.name),
            Of::ClearScroll => searches::clear_scroll(self, request, routed.name),
            Of::OpenPoint => searches::open_point_in_time(self, request, names, routed.name.unwrap_or("id")),
            Of::ClosePoint => searches::close_point_in_time(self, request, false),
            Of::CloseAllPoints => searches::close_point_in_time(self, request, true),
            Of::Points => Ok(searches::points_in_time(self, request)),
            Of::MultiSearch => searches::multi_search(self, request, routed.names),
            Of::Count => searches::count(self, request, names),
            Of::Validate => searches::validate(self, request, names),
            Of::DeleteByQuery => by_query::delete(self, request, names),
            Of::UpdateByQuery => by_query::update(self, request, names),
            Of::Reindex => by_query::reindex(self, request),
        }
    }

    fn of_documents(&self, request: &AskedRequest<'_>, route: DocumentRoute, routed: &Routed<'_>) -> Answer {
        use DocumentRoute as Of;
        let (index, id) = (routed.names.unwrap_or_default(), routed.name.unwrap_or_default());
        match route {
            Of::Bulk => bulk::answer(self, request, routed.names),
            Of::MultiGet => documents::multi_get(self, request, routed.names),
            Of::Index => documents::index(self, request, index, routed.name),
            Of::Create => documents::create(self, request, index, id),
            Of::Get => documents::get(self, request, index, id),
            Of::Source => documents::source(self, request, index, id),
            Of::Delete => documents::delete(self, request, index, id),
            Of::Update => documents::update(self, request, index, id),
        }
    }
}

/// No part of the API has this path and method.
fn no_route(request: &RestRequest) -> SearchError {
    let (path, method) = (request.path.join("/"), format!("{:?}", request.method).to_uppercase());
    SearchError::argument(format!("no handler found for uri [/{path}] and method [{method}]"))
}

impl RestHandler for Api {
    fn respond(&self, request: &RestRequest) -> RestResponse {
        self.contexts.close_old(&self.guard);
        let _listed = self.tasks.begin_request(request);
        let mut response = self.route(request).unwrap_or_else(RestResponse::from);
        response.headers.extend(request.opaque_id.clone().map(|id| ("X-Opaque-Id", id)));
        response
    }

    fn admit(&self, request: &RestRequest) -> Result<usize, RestResponse> {
        let Some(routed) = Routed::of(request) else { return Ok(SMALL_BYTES) };
        let asker = self.asker(request, routed.route.action(), routed.route.index_needs());
        self.admitted(&asker, &routed).map_err(|refusal| {
            asker.record_refusals();
            refusal.into()
        })
    }

    fn is_inline(&self) -> bool {
        self.indices.is_inline()
    }
}
