//! The tools of a server that the caller may call: `GET /{server}/rest/tools`.

use asp_pipeline::pipeline::entitlement::ServerView;
use asp_proto::snapshot::Protocol;
use asp_snapshot::ListedPrimitive;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::ProtocolRequest;

/// Returns the tools with their schemas, in the order of the server's list.
pub(super) fn list(request: &ProtocolRequest) -> Response {
    let path = request.uri.path();
    let tools: Vec<Value> = visible(request).map(|entry| tool(path, entry)).collect();
    super::json(StatusCode::OK, &json!({ "tools": tools }))
}

/// Returns the tools that the caller may see over REST (I-10).
pub(super) fn visible(request: &ProtocolRequest) -> impl Iterator<Item = &ListedPrimitive> {
    let mut view = ServerView::of(&request.snapshot, &request.server, &request.caller, Protocol::Rest);
    let pipeline = &request.gateway.pipeline;
    request.server.entries.iter().map(|entry| &**entry).filter(move |entry| {
        !entry.listing.rest_name.is_empty() && view.shows(entry) && pipeline.offers(&request.server, entry)
    })
}

fn tool(path: &str, entry: &ListedPrimitive) -> Value {
    let name = &entry.listing.rest_name;
    let primitive = &entry.primitive;
    let mut tool = Map::new();
    tool.insert("name".into(), name.as_str().into());
    for (member, text) in [("title", &primitive.title), ("description", &primitive.summary)] {
        if !text.is_empty() {
            tool.insert(member.into(), text.as_str().into());
        }
    }
    for (member, schema) in
        [("inputSchema", &primitive.input_schema), ("outputSchema", &primitive.output_schema)]
    {
        if let Ok(schema) = serde_json::from_str::<Value>(schema) {
            tool.insert(member.into(), schema);
        }
    }
    tool.insert(
        "links".into(),
        json!({ "call": format!("{path}/{name}"), "calls": format!("{path}/{name}/calls") }),
    );
    Value::Object(tool)
}
