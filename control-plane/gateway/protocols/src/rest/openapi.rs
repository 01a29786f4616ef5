//! The OpenAPI document of one server for one caller: `GET /{server}/rest/openapi.json`.
//!
//! Keeps true: it reveals nothing about a tool that its caller cannot see (I-10); the same snapshot and the same rights
//! give the same bytes; schemas are the specs' own, with only their references adapted to their new location.

use asp_call::digest;
use asp_snapshot::ListedPrimitive;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde_json::{Map, Value, json};

use super::problem::Problem;
use super::tools;
use crate::ProtocolRequest;

#[path = "openapi/parts.rs"]
mod parts;
#[path = "openapi/references.rs"]
pub mod references;

/// Returns the document, or a 304 if the client has it.
pub(super) fn get(request: &ProtocolRequest) -> Result<Response, Problem> {
    let text = document(request).to_string();
    let digest = digest::shortened(&["openapi", &text]);
    let etag: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let known = request.tags(&header::IF_NONE_MATCH)?.is_some_and(|tags| tags.match_weakly(&etag));
    let (status, body) =
        if known { (StatusCode::NOT_MODIFIED, Body::empty()) } else { (StatusCode::OK, Body::from(text)) };
    // The document differs between callers, and a removed tool must disappear from caches.
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "private, no-cache")];
    Ok((status, headers, [(header::ETAG, format!("\"{etag}\""))], body).into_response())
}

fn document(request: &ProtocolRequest) -> Value {
    let server = &request.server.message;
    let mut paths = Map::new();
    let mut schemas = parts::schemas();
    for entry in tools::visible(request) {
        add(entry, &mut paths, &mut schemas);
    }
    paths.insert("/openapi.json".into(), parts::own_path());
    paths.insert("/tools".into(), parts::tools_path());
    let title = if server.title.is_empty() { &server.name } else { &server.title };
    let mut info = json!({"title": title, "version": server.version});
    if let (Some(info), false) = (info.as_object_mut(), server.description.is_empty()) {
        info.insert("description".into(), server.description.as_str().into());
    }
    let mut document = json!({
        "openapi": "3.1.0",
        "info": info,
        "servers": [{"url": format!("{}/{}/rest", request.gateway.config.public_url, server.name)}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "parameters": parts::parameters(),
            "responses": parts::responses(),
        },
    });
    if let Some(document) = document.as_object_mut().filter(|_| request.caller.expires_at != u64::MAX) {
        document.insert("security".into(), json!([{"bearer": []}]));
        if let Some(Value::Object(components)) = document.get_mut("components") {
            components
                .insert("securitySchemes".into(), json!({"bearer": {"type": "http", "scheme": "bearer"}}));
        }
    }
    document
}

/// Adds the paths of a tool and its schemas.
fn add(entry: &ListedPrimitive, paths: &mut Map<String, Value>, schemas: &mut Map<String, Value>) {
    let name = &entry.listing.rest_name;
    let primitive = &entry.primitive;
    let own = |part: &str, text: &str| {
        let component = format!("{name}.{part}");
        let schema = serde_json::from_str(text).unwrap_or(Value::Bool(true));
        (component.clone(), references::moved(schema, &format!("#/components/schemas/{component}")))
    };
    let (arguments, schema) = own("arguments", &primitive.input_schema);
    schemas.insert(arguments.clone(), schema);
    let mut result = json!({"$ref": "#/components/schemas/Result"});
    if !primitive.output_schema.is_empty() {
        let (structured, schema) = own("result", &primitive.output_schema);
        schemas.insert(structured.clone(), schema);
        let content = json!({"$ref": format!("#/components/schemas/{structured}")});
        result = json!({"allOf": [result, {"properties": {"structuredContent": content}}]});
    }
    let call = format!("{name}.call");
    let shared = json!({"$ref": "#/components/schemas/Call"});
    schemas.insert(call.clone(), json!({"allOf": [shared, {"properties": {"result": &result}}]}));
    let tool = parts::Tool {
        name,
        result: &result,
        summary: if primitive.title.is_empty() { &primitive.id } else { &primitive.title },
        description: &primitive.summary,
        is_deprecated: primitive.deprecation.is_some(),
        call: &format!("#/components/schemas/{call}"),
        arguments: &format!("#/components/schemas/{arguments}"),
    };
    paths.extend(parts::paths(&tool));
}
