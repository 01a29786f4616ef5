//! The constant parts of the document and the paths of one tool.

use serde_json::{Map, Value, json};

/// The properties of a tool that its paths show.
pub(super) struct Tool<'a> {
    pub name: &'a str,
    pub summary: &'a str,
    pub description: &'a str,
    pub is_deprecated: bool,
    /// References to schemas.
    pub call: &'a str,
    pub arguments: &'a str,
    /// Schema of the result.
    pub result: &'a Value,
}

fn parameter(name: &str) -> Value {
    json!({"$ref": format!("#/components/parameters/{name}")})
}

/// Returns a response whose body is the call.
fn call_response(description: &str, tool: &Tool<'_>) -> Value {
    json!({
        "description": description,
        "headers": {"ETag": {"schema": {"type": "string"}}},
        "content": {"application/json": {"schema": {"$ref": tool.call}}},
    })
}

/// Returns the same with links to the call's other operations.
fn put(description: &str, tool: &Tool<'_>) -> Value {
    let mut told = call_response(description, tool);
    let link = |verb: &str| {
        let operation = format!("{}.{verb}", tool.name);
        (verb.to_owned(), json!({"operationId": operation, "parameters": {"id": "$request.path.id"}}))
    };
    let links: Map<String, Value> = ["get", "advance", "cancel", "events"].map(link).into_iter().collect();
    if let Some(told) = told.as_object_mut() {
        told.insert("links".into(), links.into());
    }
    told
}

fn problem() -> Value {
    json!({"$ref": "#/components/responses/Problem"})
}

pub(super) fn paths(tool: &Tool<'_>) -> [(String, Value); 6] {
    let path = |end: &str| format!("/tools/{}/calls{end}", tool.name);
    let operation = |verb: &str| format!("{}.{verb}", tool.name);
    [
        (format!("/tools/{}", tool.name), once(tool, &operation("once"))),
        (path(""), list(tool, &operation("list"))),
        (path("/{id}"), call(tool, &operation("put"), &operation("get"))),
        (path("/{id}/advance"), advance(tool, &operation("advance"))),
        (path("/{id}/cancel"), cancel(tool, &operation("cancel"))),
        (path("/{id}/events"), events(tool, &operation("events"))),
    ]
}

fn once(tool: &Tool<'_>, operation: &str) -> Value {
    json!({"post": {
        "operationId": operation,
        "summary": format!("{}: call it once", tool.summary),
        "description": tool.description,
        "parameters": [parameter("idempotencyKey"), parameter("prefer"), parameter("deadline")],
        "requestBody": {
            "content": {"application/json": {"schema": {"$ref": tool.arguments}}},
        },
        "responses": {
            "200": {
                "description": "The result.",
                "content": {"application/json": {"schema": tool.result}},
            },
            "202": {
                "description": "The call has not ended, or asks something; it continues at `links.self`.",
                "content": {"application/json": {"schema": {"$ref": tool.call}}},
            },
            "default": problem(),
        },
    }})
}

fn list(tool: &Tool<'_>, operation: &str) -> Value {
    json!({"get": {
        "operationId": operation,
        "summary": format!("{}: your calls, the latest first", tool.summary),
        "parameters": [parameter("limit"), parameter("cursor")],
        "responses": {
            "200": {
                "description": "A page, which may show fewer calls than asked for.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Calls"}}},
            },
            "default": problem(),
        },
    }})
}

fn call(tool: &Tool<'_>, to_put: &str, to_get: &str) -> Value {
    let mut paths = json!({
        "parameters": [parameter("id")],
        "put": {
            "operationId": to_put,
            "summary": tool.summary,
            "description": tool.description,
            "parameters": [parameter("idempotencyKey"), parameter("prefer"), parameter("deadline")],
            "requestBody": {
                "content": {"application/json": {"schema": {"$ref": tool.arguments}}},
            },
            "responses": {
                "200": put("The call already existed.", tool),
                "201": put("The call has started.", tool),
                "default": problem(),
            },
        },
        "get": {
            "operationId": to_get,
            "summary": format!("{}: state of a call", tool.summary),
            "parameters": [parameter("ifNoneMatch"), parameter("prefer")],
            "responses": {
                "200": call_response("The call.", tool),
                "304": {"description": "The call has not changed."},
                "default": problem(),
            },
        },
    });
    if tool.is_deprecated
        && let Some(put) = paths.pointer_mut("/put").and_then(Value::as_object_mut)
    {
        put.insert("deprecated".to_owned(), true.into());
    }
    paths
}

fn advance(tool: &Tool<'_>, operation: &str) -> Value {
    json!({"parameters": [parameter("id")], "post": {
        "operationId": operation,
        "summary": format!("{}: answer a question of a call", tool.summary),
        "parameters": [parameter("ifMatch"), parameter("prefer")],
        "requestBody": {
            "required": true,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Answer"}}},
        },
        "responses": {"200": call_response("The call continues.", tool), "default": problem()},
    }})
}

fn cancel(tool: &Tool<'_>, operation: &str) -> Value {
    json!({"parameters": [parameter("id")], "post": {
        "operationId": operation,
        "summary": format!("{}: cancel a call", tool.summary),
        "responses": {"200": call_response("The call; it ends unless it already has.", tool), "default": problem()},
    }})
}

fn events(tool: &Tool<'_>, operation: &str) -> Value {
    json!({"parameters": [parameter("id")], "get": {
        "operationId": operation,
        "summary": format!("{}: follow a call", tool.summary),
        "parameters": [parameter("lastEventId")],
        "responses": {
            "200": {
                "description": "Server-sent events: progress, status, log, chunk, artifact, asked, gap, and end.",
                "content": {"text/event-stream": {}},
            },
            "204": {"description": "The end was already sent."},
            "default": problem(),
        },
    }})
}

pub(super) fn own_path() -> Value {
    json!({"get": {
        "operationId": "openapi",
        "summary": "This document",
        "parameters": [parameter("ifNoneMatch")],
        "responses": {
            "200": {
                "description": "Operations that you may call.",
                "content": {"application/json": {"schema": {"type": "object", "required": ["openapi"]}}},
            },
            "304": {"description": "It has not changed."},
            "default": problem(),
        },
    }})
}

pub(super) fn tools_path() -> Value {
    json!({"get": {
        "operationId": "tools",
        "summary": "The tools that you may call",
        "responses": {
            "200": {
                "description": "The tools, with their schemas.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Tools"}}},
            },
            "default": problem(),
        },
    }})
}

pub(super) fn parameters() -> Value {
    let header = |name: &str, description: &str, schema: Value| json!({"name": name, "in": "header", "description": description, "schema": schema});
    let visible =
        |most: u32| json!({"type": "string", "pattern": "^[!-~]+$", "minLength": 1, "maxLength": most});
    let tags = json!({"type": "string", "pattern": "^(\\*|(W/)?\"[!#-~]*\")$"});
    json!({
        "id": {
            "name": "id", "in": "path", "required": true,
            "description": "Chosen by the client; an id identifies one call of yours at this server.",
            "schema": {"type": "string", "pattern": "^[A-Za-z0-9_.~-]{1,128}$", "not": {"enum": [".", ".."]}},
        },
        "limit": {
            "name": "limit", "in": "query",
            "schema": {"type": "integer", "minimum": 1, "maximum": 100, "default": 100},
        },
        "cursor": {
            "name": "cursor", "in": "query", "description": "`nextCursor` of the previous page.",
            "schema": {"type": "string"},
        },
        "idempotencyKey": header("Idempotency-Key", "Default: the call's id.", visible(255)),
        "prefer": header("Prefer", "`wait=N`: hold the response open for at most N seconds (maximum 60) until there is something to report. `sampling`: the client answers the call's requests to a model.", json!({"type": "string"})),
        "deadline": header("X-Deadline-Ms", "Deadline of the call, in Unix milliseconds.", json!({"type": "integer", "minimum": 0})),
        "ifMatch": header("If-Match", "Only if the call has this entity tag.", tags.clone()),
        "ifNoneMatch": header("If-None-Match", "Only if the call has another entity tag.", tags),
        "lastEventId": header("Last-Event-ID", "Continue after this event.", json!({"type": "string", "pattern": "^(end|[0-9a-f]{8}\\.[0-9]{1,19})$"})),
    })
}

pub(super) fn responses() -> Value {
    json!({"Problem": {
        "description": "A refusal (RFC 9457); `reason` is one of a closed set.",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }})
}

pub(super) fn schemas() -> Map<String, Value> {
    let mut schemas = Map::new();
    for part in [of_calls(), of_answers(), of_problems()] {
        if let Value::Object(part) = part {
            schemas.extend(part);
        }
    }
    schemas
}

fn of_calls() -> Value {
    json!({
        "Status": {"enum": [
            "submitted", "running", "awaitingElicitationResult", "awaitingSamplingResult", "success", "failed", "canceled",
        ]},
        "Call": {
            "type": "object",
            "required": ["id", "etag", "status", "createdAt", "updatedAt", "links"],
            "properties": {
                "id": {"type": "string"},
                "etag": {"type": "string"},
                "status": {"$ref": "#/components/schemas/Status"},
                "createdAt": {"type": "string", "format": "date-time"},
                "updatedAt": {"type": "string", "format": "date-time"},
                "progress": {
                    "type": "object", "required": ["progress"],
                    "properties": {
                        "progress": {"type": "number"}, "total": {"type": "number"}, "message": {"type": "string"},
                    },
                },
                "partial": {"type": "string"},
                "elicitationRequest": {"type": "object"},
                "samplingRequest": {"type": "object"},
                "serverData": {},
                "history": {"type": "array", "items": {"$ref": "#/components/schemas/Turn"}},
                "historyGone": {"type": "integer", "minimum": 1},
                "result": {"type": "object"},
                "error": {
                    "type": "object", "required": ["code", "message"],
                    "properties": {"code": {"type": "string"}, "message": {"type": "string"}},
                },
                "links": {
                    "type": "object", "required": ["self", "events"],
                    "properties": {"self": {"type": "string"}, "events": {"type": "string"}},
                },
            },
        },
    })
}

/// Returns the schemas of a call's content, of the messages sent to it, and of a list of calls.
fn of_answers() -> Value {
    json!({
        "Result": {
            "type": "object",
            "required": ["content", "isError"],
            "properties": {
                "content": {"type": "array", "items": {"type": "object", "required": ["type"]}},
                "isError": {"type": "boolean"},
                "_meta": {"type": "object"},
            },
        },
        "Turn": {
            "type": "object",
            "required": ["answeredAt", "serverData"],
            "properties": {
                "answeredAt": {"type": "string", "format": "date-time"}, "serverData": {},
                "elicitationRequest": {"type": "object"}, "samplingRequest": {"type": "object"},
                "result": {"type": "object"}, "error": {"type": "object"},
            },
            "oneOf": [{"required": ["result"]}, {"required": ["error"]}],
        },
        "Answer": {
            "type": "object",
            "properties": {"serverData": {}, "result": {"type": "object"}, "error": {"type": "object"}},
            "anyOf": [{"required": ["result"]}, {"required": ["error"]}],
        },
        "Tools": {
            "type": "object",
            "required": ["tools"],
            "properties": {"tools": {"type": "array", "items": {
                "type": "object",
                "required": ["name", "inputSchema", "links"],
                "properties": {"name": {"type": "string"}, "title": {"type": "string"}, "description": {"type": "string"}},
            }}},
        },
        "Calls": {
            "type": "object",
            "required": ["calls"],
            "properties": {
                "calls": {"type": "array", "items": {
                    "type": "object",
                    "required": ["id", "status", "createdAt", "updatedAt", "links"],
                    "properties": {"id": {"type": "string"}, "status": {"$ref": "#/components/schemas/Status"}},
                }},
                "nextCursor": {"type": "string"},
            },
        },
    })
}

fn of_problems() -> Value {
    let text = || json!({"type": "string"});
    json!({
        "Problem": {
            "type": "object",
            "required": ["type", "title", "status", "reason", "code"],
            "properties": {
                "type": text(), "title": text(), "detail": text(), "reason": text(), "recoveryHint": text(), "recovery_hint": text(),
                "traceId": text(), "status": {"type": "integer"}, "code": {"type": "integer"},
            },
        },
    })
}
