//! The OpenAPI 3.1 document, generated from the handlers, and its page.

mod page;

use axum::Json;
use axum::response::Html;
use http::Method;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, ResponseBuilder};

use super::{
    approvals, artifacts, blocks, bodies, bounds, calls, certificates, changes, disabled, explain,
    explain_token, ids, issuers, kafka, limit_usage, link_providers, links, live, machines, offers, orgs,
    policy, policy_preview, primitives, problem, push, ratelimits, regions, registry, resources, revocations,
    routes, runtimes, status, undo, usage, versions,
};

#[derive(OpenApi)]
#[openapi(
    info(title = "Agentic Server Platform admin API", version = "1.0.0"),
    paths(
        registry::validate,
        registry::compile,
        registry::list_servers,
        registry::put_server,
        registry::get_server,
        registry::delete_server,
        registry::confirm_a2a,
        disabled::disable,
        disabled::enable,
        disabled::disable_primitive,
        disabled::enable_primitive,
        versions::list,
        versions::get,
        versions::rollback,
        offers::list,
        offers::get,
        offers::put,
        offers::delete,
        offers::standing,
        ids::list,
        ids::grant,
        ids::withdraw,
        primitives::org_primitives,
        explain::explain,
        explain_token::explain_token,
        orgs::list,
        policy::put_exposure,
        policy::get_exposure,
        policy::delete_exposure,
        policy::put_binding,
        policy::get_bindings,
        policy::delete_bindings,
        ratelimits::put,
        ratelimits::get,
        ratelimits::delete,
        ratelimits::put_platform,
        ratelimits::get_platform,
        ratelimits::delete_platform,
        limit_usage::get,
        routes::put,
        routes::get,
        routes::delete,
        routes::pools,
        regions::put,
        regions::get,
        regions::delete,
        regions::homes,
        regions::put_home,
        regions::get_home,
        regions::delete_home,
        artifacts::put,
        artifacts::get,
        artifacts::list,
        artifacts::delete,
        issuers::list,
        issuers::login,
        issuers::put,
        issuers::get,
        issuers::delete,
        machines::add,
        machines::list,
        machines::delete,
        bounds::get,
        bounds::put,
        bounds::delete,
        certificates::register,
        certificates::list,
        certificates::delete,
        revocations::add,
        revocations::add_several,
        revocations::list,
        revocations::get,
        revocations::delete,
        revocations::delete_matching,
        blocks::add,
        blocks::list,
        blocks::delete,
        status::snapshot,
        runtimes::list,
        status::audit,
        undo::preview,
        undo::undo,
        calls::list,
        calls::export,
        calls::approvals,
        bodies::get,
        changes::list,
        push::list,
        push::get,
        push::replay,
        push::delete,
        kafka::parked, kafka::drop_parked, approvals::list, approvals::get, approvals::decide,
        link_providers::list,
        link_providers::get,
        link_providers::put,
        link_providers::delete,
        links::list,
        links::remove,
        status::schemas,
        status::jwks,
        policy_preview::preview,
        live::calls,
        live::cancel_call,
        live::sessions,
        live::end_session,
        usage::get,
        usage::unused,
    ),
    components(schemas(problem::Problem, problem::Code)),
    modifiers(&BearerToken, &Refusals, &Roles),
    security(("bearer" = []))
)]
pub struct ApiDocument;

struct BearerToken;

impl utoipa::Modify for BearerToken {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("JWT").build();
        openapi
            .components
            .get_or_insert_with(Default::default)
            .add_security_scheme("bearer", SecurityScheme::Http(scheme));
    }
}

/// Adds a problem document as the default response of every operation; `code` in it tells refusals apart that the
/// operation does not list.
struct Refusals;

const PROBLEM: &str = "application/problem+json";

impl utoipa::Modify for Refusals {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let refusal = Ref::from_schema_name("Problem");
        for item in openapi.paths.paths.values_mut() {
            let all = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete];
            for operation in all.into_iter().flatten() {
                for (status, response) in &mut operation.responses.responses {
                    let RefOr::T(response) = response else { continue };
                    // The generator describes those that the handlers list as JSON.
                    if status.starts_with('4')
                        && let Some(content) = response.content.shift_remove("application/json")
                    {
                        response.content.insert(PROBLEM.into(), content);
                    }
                }
                let other = ResponseBuilder::new()
                    .description("a refusal")
                    .content(PROBLEM, Content::new(Some(refusal.clone())))
                    .build();
                operation.responses.responses.insert("default".into(), RefOr::T(other));
            }
        }
    }
}

/// States which roles each operation admits.
struct Roles;

impl utoipa::Modify for Roles {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        for resource in resources() {
            let Some(item) = openapi.paths.paths.get_mut(resource.path) else { continue };
            for (method, operation) in [
                (Method::GET, &mut item.get),
                (Method::PUT, &mut item.put),
                (Method::POST, &mut item.post),
                (Method::DELETE, &mut item.delete),
            ] {
                let Some(operation) = operation else { continue };
                let roles = resource.permission.roles(&method);
                let changes = if resource.permission.changes(&method) { ", not with `:read`" } else { "" };
                let description = operation.description.get_or_insert_default();
                let gap = if description.is_empty() { "" } else { "\n\n" };
                description.push_str(&format!("{gap}Roles: {roles}{changes}."));
            }
        }
    }
}

/// Serves the document. Public.
pub async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(ApiDocument::openapi())
}

/// Examples that use the state directory's `env`, written by `asp serve --dev`.
const EXAMPLES: &str = "\
source .asp/env
auth=\"Authorization: Bearer $ASP_ADMIN_TOKEN\"
curl -s -H \"$auth\" $ASP_ADMIN_URL/api/registry/servers
curl -s -H \"$auth\" $ASP_ADMIN_URL/api/registry/orgs/acme/primitives
curl -s -H \"$auth\" -X PUT $ASP_ADMIN_URL/api/policy/orgs/acme/bindings --json \\
  '{\"target\": {\"type\": \"user\", \"idOrPattern\": \"bob\"}, \"primitive\": {\"name\": \"echo\"}, \"allowed\": false}'
curl -s -H \"$auth\" -X PUT $ASP_ADMIN_URL/api/policy/orgs/acme/bindings --json \\
  '{\"target\": {\"type\": \"machine\", \"idOrPattern\": \"*\"}, \"primitive\": {\"name\": \"echo\"}, \"allowed\": false}'
curl -s -H \"$auth\" $ASP_ADMIN_URL/api/policy/explain --json \\
  '{\"org\": \"acme\", \"user\": \"bob\", \"server\": \"demo\", \"primitive\": \"echo\", \"protocol\": \"mcp\"}'
curl -s -H \"$auth\" -X PUT $ASP_ADMIN_URL/api/ratelimits/orgs/acme --json \\
  '[{\"selector\": {\"user\": \"each\"}, \"policy\": {\"capacity\": 20, \"refill\": \"5/s\"}},
    {\"selector\": {\"machine\": \"each\"}, \"policy\": {\"capacity\": 5, \"refill\": \"1/s\"}}]'
curl -s -H \"$auth\" $ASP_ADMIN_URL/api/revocations --json '{\"type\": \"user\", \"org\": \"acme\", \"id\": \"bob\"}'
";

const STYLE: &str = "<style>body{font:16px sans-serif;margin:2em;max-width:70em}td{padding:.2em 1em .2em 0;\
    vertical-align:top}th{text-align:left}pre{background:#eee;padding:1em}summary{cursor:pointer;padding:.2em 0}\
    details[open]{border-left:3px solid #ccc;padding-left:1em;margin-bottom:1em}</style>";

/// Serves the page at the port's root, with links to the others. Public.
pub async fn root() -> Html<String> {
    Html(format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>ASP control plane</title>{STYLE}\
         <h1>Agentic Server Platform: control plane</h1><p>This is the admin port. MCP clients go to the public URL, \
         <code>/&lt;server&gt;/mcp</code>.</p><ul>\
         <li><a href=/admin>/admin</a>: the page for admins\
         <li><a href=/api/docs>/api/docs</a>: the admin API's operations; <a href=/api/openapi.json>openapi.json</a>\
         <li><a href=/readyz>/readyz</a>: whether a snapshot is published; <a href=/healthz>/healthz</a>, \
         <a href=/metrics>/metrics</a></ul>\
         <p>On a terminal: <code>asp status</code>, <code>asp explain</code>, <code>asp apply</code>; \
         <code>asp --help</code> lists the rest.</p></html>"
    ))
}

/// Serves a readable page of the document, without scripts or external resources. Public.
pub async fn page() -> Html<String> {
    let document = serde_json::to_value(ApiDocument::openapi()).unwrap_or_default();
    let operations = page::operations(&document);
    let types = page::types(&document);
    Html(format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>ASP admin API</title>{STYLE}\
         <h1>Admin API</h1><p>Every operation requires an admin token (<code>asp token --admin --user NAME</code>) \
         as <code>Authorization: Bearer</code>. The full contract, for tools: <a href=openapi.json>openapi.json</a> \
         (OpenAPI 3.1). <a href=#operations>Operations</a>, <a href=#types>types</a>.</p>\
         <h2>Try it</h2><pre>{EXAMPLES}</pre><h2 id=operations>Operations</h2>\
         <p>A refusal is a problem document (RFC 9457) with a stable <code>code</code>. Answers carry an ETag where \
         <code>If-Match</code> guards a change.</p>\n{operations}<h2 id=types>Types</h2>\n{types}</html>"
    ))
}
