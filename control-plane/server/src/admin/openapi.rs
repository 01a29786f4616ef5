//! The OpenAPI 3.1 document, generated from the handlers.

use axum::Json;
use axum::response::Html;
use serde_json::Value;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};

use super::{artifacts, explain, policy, problem, ratelimits, registry, revocations, runtimes, status};

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
        registry::org_primitives,
        explain::explain,
        policy::put_exposure,
        policy::get_exposure,
        policy::delete_exposure,
        policy::put_binding,
        policy::get_bindings,
        policy::delete_bindings,
        ratelimits::put,
        ratelimits::get,
        ratelimits::delete,
        artifacts::put,
        artifacts::get,
        artifacts::list,
        artifacts::delete,
        revocations::add,
        revocations::list,
        revocations::get,
        revocations::delete,
        revocations::delete_matching,
        status::snapshot,
        runtimes::list,
        status::audit,
        status::schemas,
        status::jwks,
    ),
    components(schemas(problem::Problem, problem::Code)),
    modifiers(&BearerToken),
    security(("bearer" = []))
)]
pub struct Document;

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

/// Serves the document. Public.
pub async fn document() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}

/// A page of the operations for people: no script, nothing loaded from elsewhere. Public.
pub async fn page() -> Html<String> {
    let document = serde_json::to_value(Document::openapi()).unwrap_or_default();
    let mut rows = String::new();
    for (path, item) in document.get("paths").and_then(Value::as_object).into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            let summary = operation.get("summary").and_then(Value::as_str).unwrap_or_default();
            let cells = [method.to_uppercase(), path.clone(), summary.to_owned()].map(|text| escaped(&text));
            rows.push_str(&format!("<tr><td>{}</td></tr>\n", cells.join("</td><td>")));
        }
    }
    Html(format!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>ASP admin API</title>\
         <style>body{{font:16px sans-serif;margin:2em}}td{{padding:.2em 1em .2em 0;vertical-align:top}}\
         td:nth-child(2){{font-family:monospace}}</style>\
         <h1>Admin API</h1><p>Every operation wants an admin token (<code>asp token --admin --user NAME</code>) \
         as <code>Authorization: Bearer</code>. The whole contract: <a href=openapi.json>openapi.json</a>.</p>\
         <table>\n{rows}</table></html>"
    ))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
