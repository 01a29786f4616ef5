//! Extensions of A2A: those that a client activates, and what they add to a task.
//!
//! Owns: the platform's extensions, `cost-v1`, `worldstate-delta-v1` and `tool-call-v1`, and the parts of `skill-v1`; a server's
//! card may declare others, which are negotiated alike. Keeps true: an extension adds nothing unless the client has activated it, and
//! the response names what is active; values are those of the plugin, in its result's `_meta`, or were measured here, and one
//! without the form of its extension is left out. 1.0 has a value as metadata by its URI, 0.3 as a data part.

use asp_a2a::version::{EXTENSIONS_HEADER, EXTENSIONS_HEADER_V03, extensions as read_header};
use asp_a2a::{A2aError, A2aFailure, Artifact, Generation, Message, Part, PartContent};
use asp_call::call::event::{ToolStep, ToolUse};
use asp_json::{Json, Members, named};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

use super::ids::TaskIds;
use crate::ProtocolRequest;

/// Extension of the platform. A plugin gives its value under the URI in the `_meta` of its result.
struct PlatformExtension {
    uri: &'static str,
    /// Media type of its data part.
    media_type: &'static str,
    description: &'static str,
}

const COST: PlatformExtension = PlatformExtension {
    uri: "https://proto-labs.ai/a2a/ext/cost-v1",
    media_type: "application/vnd.protolabs.cost-v1+json",
    description: "Tokens, duration and cost of a task, also of one that failed.",
};
const WORLDSTATE: PlatformExtension = PlatformExtension {
    uri: "https://proto-labs.ai/a2a/ext/worldstate-delta-v1",
    media_type: "application/vnd.protolabs.worldstate-delta-v1+json",
    description: "Changes that a task has made.",
};
const TOOL_CALL: PlatformExtension = PlatformExtension {
    uri: "https://proto-labs.ai/a2a/ext/tool-call-v1",
    media_type: "application/vnd.protolabs.tool-call-v1+json",
    description: "Tools that a task uses while it works.",
};
const OWN: [&PlatformExtension; 3] = [&COST, &WORLDSTATE, &TOOL_CALL];
/// Media type of a skill that an agent has learned, and the member of `_meta` with one or several. It has no URI, so that it
/// is not negotiated.
const SKILL: &str = "application/vnd.protolabs.skill-v1+json";
/// Maximum number of changes in one value.
const MAX_DELTAS: usize = 1000;
/// Maximum number of skills of one result.
const MAX_SKILLS: usize = 16;

/// The platform's extensions that a client has activated, and its version.
#[derive(Clone, Copy, Debug)]
pub(super) struct ActiveExtensions {
    pub(super) generation: Generation,
    cost: bool,
    worldstate: bool,
    tool_calls: bool,
}

/// Result of the negotiation of one request.
#[derive(Debug)]
pub(super) struct Negotiation {
    pub(super) active: ActiveExtensions,
    /// URIs of all active extensions, in the order of the request.
    uris: Vec<String>,
    /// URIs of required extensions that the client has not activated.
    missing: Vec<String>,
}

/// The end of a call, as extensions report it.
pub(super) struct CallEnd<'e> {
    /// `_meta` of the result.
    pub(super) meta: &'e Members,
    /// Tokens in and out that were counted here.
    pub(super) tokens: (u64, u64),
    pub(super) took_ms: u64,
    pub(super) success: bool,
}

impl Negotiation {
    pub(super) fn of(request: &ProtocolRequest, generation: Generation) -> Negotiation {
        Negotiation::between(&request.headers, &request.server.message.a2a_card, generation)
    }

    fn between(headers: &HeaderMap, card: &str, generation: Generation) -> Negotiation {
        // Clients of either version send either name.
        let names = [EXTENSIONS_HEADER, EXTENSIONS_HEADER_V03];
        let values = names.into_iter().flat_map(|name| headers.get_all(name));
        let wanted = read_header(values.filter_map(|value| value.to_str().ok()));
        let declared = declared(card);
        let is_known = |uri: &str| {
            OWN.iter().any(|own| own.uri == uri) || declared.iter().any(|(declared, _)| declared == uri)
        };
        let uris: Vec<String> = wanted.into_iter().filter(|&uri| is_known(uri)).map(str::to_owned).collect();
        let is_missing = |(uri, is_required): &(String, bool)| *is_required && !uris.contains(uri);
        let missing =
            declared.iter().filter(|&declared| is_missing(declared)).map(|(uri, _)| uri.clone()).collect();
        let has = |own: &PlatformExtension| uris.iter().any(|uri| uri == own.uri);
        let active = ActiveExtensions {
            generation,
            cost: has(&COST),
            worldstate: has(&WORLDSTATE),
            tool_calls: has(&TOOL_CALL),
        };
        Negotiation { active, uris, missing }
    }

    /// Refuses a message of a client that has not activated what the card requires (A2A 1.0, section 3.3.4).
    pub(super) fn check_required(&self) -> Result<(), A2aFailure> {
        if self.missing.is_empty() {
            return Ok(());
        }
        let message =
            "the agent requires extensions: name them in the header A2A-Extensions, in 0.3 X-A2A-Extensions";
        let failure = A2aFailure::new(A2aError::ExtensionSupportRequired, message);
        Err(failure.with("extensions", Value::from(self.missing.clone()).to_string()))
    }

    /// Adds the header with the active extensions to a response.
    pub(super) fn echo(&self, headers: &mut HeaderMap) {
        if self.uris.is_empty() {
            return;
        }
        let name = match self.active.generation {
            Generation::V10 => EXTENSIONS_HEADER,
            Generation::V03 => EXTENSIONS_HEADER_V03,
        };
        if let Ok(value) = HeaderValue::from_str(&self.uris.join(", ")) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// Returns the extensions of a compiled card: the URI of each, and whether it is required.
fn declared(card: &str) -> Vec<(String, bool)> {
    // Most cards declare none before the platform's are added, and each request looks.
    if !card.contains("\"extensions\"") {
        return Vec::new();
    }
    let Some([Some(capabilities)]) = named(card, ["capabilities"]) else { return Vec::new() };
    let capabilities: Value = serde_json::from_str(capabilities).unwrap_or_default();
    let listed = capabilities.get("extensions").and_then(Value::as_array).into_iter().flatten();
    let read = |extension: &Value| {
        let is_required = extension.get("required") == Some(&Value::Bool(true));
        Some((extension.get("uri")?.as_str()?.to_owned(), is_required))
    };
    listed.filter_map(read).collect()
}

/// Returns the extensions of a card with those of the platform.
pub(super) fn all_of(declared: Option<&Json>) -> Json {
    let mut all = declared.and_then(Json::elements).unwrap_or_default();
    for own in OWN {
        let uri = Value::from(own.uri);
        if !all.iter().any(|other| other.get("uri") == Some(&uri)) {
            all.push(json!({"uri": own.uri, "description": own.description}).into());
        }
    }
    array(&all)
}

/// Whether a member of a result's `_meta` is the value of an extension, which is not shown otherwise.
pub(super) fn is_value(name: &str) -> bool {
    name == SKILL || OWN.iter().any(|own| own.uri == name)
}

impl ActiveExtensions {
    pub(super) const NONE: ActiveExtensions =
        ActiveExtensions { generation: Generation::V10, cost: false, worldstate: false, tool_calls: false };

    /// Adds values to the last artifact of a task.
    pub(super) fn report(self, artifact: &mut Artifact, end: &CallEnd<'_>) {
        if self.cost
            && let Some(value) = cost(end)
        {
            self.attach(artifact, &COST, value);
        }
        if self.worldstate
            && let Some(value) = end.meta.get(WORLDSTATE.uri).and_then(worldstate)
        {
            self.attach(artifact, &WORLDSTATE, value);
        }
    }

    fn attach(self, artifact: &mut Artifact, extension: &PlatformExtension, value: Json) {
        match self.generation {
            Generation::V10 => {
                let mut metadata = artifact.metadata.as_ref().map(Members::of).unwrap_or_default();
                metadata.insert(extension.uri, value);
                artifact.metadata = Some(metadata.to_json());
            }
            Generation::V03 => artifact.parts.push(data_part(extension.media_type, value)),
        }
        artifact.extensions.push(extension.uri.to_owned());
    }

    /// Returns the message about the use of a tool, which is event number `number`; `None` if no client wants to know.
    pub(super) fn tool_message(self, ids: &TaskIds, number: u64, tool_use: &ToolUse) -> Option<Message> {
        if !self.tool_calls {
            return None;
        }
        let mut message = ids.message(&number.to_string(), Vec::new());
        let value = tool_call(tool_use);
        match self.generation {
            Generation::V10 => {
                let metadata: Members = [(TOOL_CALL.uri, value)].into_iter().collect();
                message.metadata = Some(metadata.to_json());
            }
            Generation::V03 => message.parts.push(data_part(TOOL_CALL.media_type, value)),
        }
        message.extensions.push(TOOL_CALL.uri.to_owned());
        Some(message)
    }
}

fn tool_call(tool_use: &ToolUse) -> Json {
    let (phase, name, shown) = match &tool_use.step {
        ToolStep::Started { args } => ("started", "args", args),
        ToolStep::Completed { result } => ("completed", "result", result),
        ToolStep::Failed { error } => ("failed", "error", error),
    };
    json!({"toolCallId": tool_use.id, "name": tool_use.name, "phase": phase, name: shown}).into()
}

/// Returns the cost: the plugin's, else of the tokens that were counted here; `None` if there is neither.
fn cost(end: &CallEnd<'_>) -> Option<Json> {
    let given = end.meta.get(COST.uri);
    let usage = given.and_then(|given| given_usage(&given.member("usage")?));
    let mut cost = Members::default();
    cost.insert("usage", usage.or_else(|| counted_usage(end.tokens))?);
    let amount_of = |name: &str| given.and_then(|given| amount(given, name));
    cost.insert("durationMs", amount_of("durationMs").unwrap_or_else(|| end.took_ms.into()));
    if let Some(price) = amount_of("costUsd") {
        cost.insert("costUsd", price);
    }
    cost.insert("success", end.success);
    Some(cost.to_json())
}

fn given_usage(given: &Json) -> Option<Json> {
    let count = |name: &str| {
        let is_whole = |count: &Json| count.as_f64().is_some_and(|count| count.fract() == 0.0);
        amount(given, name).filter(is_whole)
    };
    let mut usage = Members::default();
    for name in ["input_tokens", "output_tokens"] {
        usage.insert(name, count(name)?);
    }
    for name in ["cache_creation_input_tokens", "cache_read_input_tokens"] {
        if let Some(count) = count(name) {
            usage.insert(name, count);
        }
    }
    Some(usage.to_json())
}

fn counted_usage((tokens_in, tokens_out): (u64, u64)) -> Option<Json> {
    let usage = json!({"input_tokens": tokens_in, "output_tokens": tokens_out});
    (tokens_in > 0 || tokens_out > 0).then(|| usage.into())
}

/// Returns a number that is not negative.
fn amount(given: &Json, name: &str) -> Option<Json> {
    given.member(name).filter(|amount| amount.as_f64().is_some_and(|amount| amount >= 0.0))
}

fn worldstate(given: &Json) -> Option<Json> {
    let given = given.member("deltas")?.elements()?;
    let deltas = given.iter().map(delta).collect::<Option<Vec<Json>>>()?;
    let value: Members = [("deltas", array(&deltas))].into_iter().collect();
    (1..=MAX_DELTAS).contains(&deltas.len()).then(|| value.to_json())
}

fn delta(given: &Json) -> Option<Json> {
    let op = text(given, "op").filter(|op| matches!(op.as_str(), Some("set" | "inc" | "push")))?;
    let mut delta = Members::default();
    delta.insert("domain", text(given, "domain")?);
    delta.insert("path", text(given, "path")?);
    delta.insert("op", op);
    delta.insert("value", given.member("value")?);
    Some(delta.to_json())
}

/// Returns the skills in a result's `_meta` as parts.
pub(super) fn skills(meta: &Members) -> Vec<Part> {
    let Some(given) = meta.get(SKILL) else { return Vec::new() };
    let given = given.elements().unwrap_or_else(|| vec![given.clone()]);
    given.iter().take(MAX_SKILLS).filter_map(skill).map(|skill| data_part(SKILL, skill)).collect()
}

fn skill(given: &Json) -> Option<Json> {
    let is_list = |tools: &Json| tools.as_array().is_some_and(|tools| tools.iter().all(Value::is_string));
    let mut skill = Members::default();
    for name in ["name", "description", "prompt_template"] {
        skill.insert(name, text(given, name)?);
    }
    skill.insert("tools_used", given.member("tools_used").filter(is_list)?);
    for name in ["created_at", "source_session_id"] {
        skill.insert(name, text(given, name)?);
    }
    Some(skill.to_json())
}

fn text(given: &Json, name: &str) -> Option<Json> {
    given.member(name).filter(|text| text.is_string())
}

fn array(items: &[Json]) -> Json {
    let texts: Vec<&str> = items.iter().map(Json::text).collect();
    Json::part(format!("[{}]", texts.join(",")))
}

/// Returns data of a media type. 0.3 has no media types of data, so that it is among the metadata as well.
fn data_part(media_type: &str, value: Json) -> Part {
    let metadata: Members = [("mimeType", media_type)].into_iter().collect();
    let media_type = Some(media_type.to_owned());
    let metadata = Some(metadata.to_json());
    Part { media_type, metadata, ..PartContent::Data(value).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: &str = r#"{"name":"A","capabilities":{"streaming":true,"extensions":[
        {"uri":"urn:a"},{"uri":"urn:must","required":true},{"uri":"urn:may","required":false}]}}"#;

    fn negotiated(headers: &[(&'static str, &str)], card: &str, generation: Generation) -> Negotiation {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        Negotiation::between(&map, card, generation)
    }

    fn echoed(negotiated: &Negotiation) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        negotiated.echo(&mut headers);
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
    }

    fn active(generation: Generation) -> ActiveExtensions {
        ActiveExtensions { generation, cost: true, worldstate: true, tool_calls: true }
    }

    fn members(value: Value) -> Members {
        Members::of(&value.into())
    }

    fn reported(active: ActiveExtensions, end: &CallEnd<'_>) -> Artifact {
        let mut artifact = Artifact { metadata: Some(json!({"k": 1}).into()), ..Artifact::default() };
        active.report(&mut artifact, end);
        artifact
    }

    #[test]
    fn known_extensions_are_activated_by_either_header_and_echoed_in_that_of_the_version() {
        for (generation, header) in
            [(Generation::V10, "a2a-extensions"), (Generation::V03, "x-a2a-extensions")]
        {
            for sent in ["a2a-extensions", "x-a2a-extensions"] {
                let wanted = format!("urn:must, urn:unknown,{}", COST.uri);
                let found =
                    negotiated(&[(sent, wanted.as_str()), (sent, "urn:a,urn:must")], CARD, generation);
                let echo = format!("urn:must, {}, urn:a", COST.uri);
                assert_eq!(echoed(&found), [(header.to_owned(), echo)]);
                assert!(found.active.cost && !found.active.worldstate && !found.active.tool_calls);
                assert_eq!(found.check_required(), Ok(()));
            }
        }
        let nothing = negotiated(&[("a2a-extensions", "urn:unknown")], "", Generation::V10);
        assert_eq!(echoed(&nothing), vec![]);
        let many: Vec<String> = (0..200).map(|n| format!("urn:{n}")).collect();
        let late = format!("{},{}", many.join(","), COST.uri);
        assert!(
            !negotiated(&[("a2a-extensions", late.as_str())], "", Generation::V10).active.cost,
            "the list is bounded"
        );
    }

    #[test]
    fn a_required_extension_that_is_not_activated_is_an_error_that_names_it() {
        let failure =
            negotiated(&[("a2a-extensions", "urn:a")], CARD, Generation::V10).check_required().unwrap_err();
        assert_eq!(failure.error, A2aError::ExtensionSupportRequired);
        assert!(failure.metadata.contains(&("extensions".into(), r#"["urn:must"]"#.into())), "{failure:?}");
        for card in
            ["", "{}", r#"{"capabilities":{}}"#, r#"{"capabilities":{"extensions":[{"required":true}]}}"#]
        {
            assert_eq!(negotiated(&[], card, Generation::V10).check_required(), Ok(()), "{card}");
        }
    }

    #[test]
    fn a_card_declares_the_extensions_of_the_platform_once() {
        let uris = |all: &Json| -> Vec<String> {
            all.as_array().unwrap().iter().map(|each| each["uri"].as_str().unwrap().to_owned()).collect()
        };
        let platforms: Vec<&str> = OWN.iter().map(|own| own.uri).collect();
        assert_eq!(uris(&all_of(None)), platforms);
        let declared = json!([{"uri": "urn:a"}, {"uri": WORLDSTATE.uri, "required": true}]).into();
        let all = all_of(Some(&declared));
        assert_eq!(uris(&all), ["urn:a", WORLDSTATE.uri, COST.uri, TOOL_CALL.uri]);
        assert_eq!(all[1]["required"], true);
    }

    #[test]
    fn a_cost_is_the_plugins_with_what_is_known_here_in_the_form_of_the_version() {
        let given = r#"{"usage":{"input_tokens":1200.0,"output_tokens":7,"cache_read_input_tokens":3,"other":1},"costUsd":0.010,"total":9}"#;
        let meta: Members = [(COST.uri, Json::part(given))].into_iter().collect();
        let end = CallEnd { meta: &meta, tokens: (1, 1), took_ms: 40, success: false };
        let expected = r#"{"usage":{"input_tokens":1200.0,"output_tokens":7,"cache_read_input_tokens":3},"durationMs":40,"costUsd":0.010,"success":false}"#;
        let artifact = reported(active(Generation::V10), &end);
        let metadata = artifact.metadata.unwrap();
        assert_eq!(metadata.member(COST.uri).unwrap().text(), expected);
        assert_eq!((&metadata["k"], artifact.parts.len()), (&json!(1), 0));
        assert_eq!(artifact.extensions, [COST.uri]);
        let artifact = reported(active(Generation::V03), &end);
        assert_eq!(artifact.metadata.unwrap(), json!({"k": 1}));
        let [part] = artifact.parts.as_slice() else { panic!("{:?}", artifact.parts) };
        assert!(matches!(&part.content, PartContent::Data(value) if value.text() == expected));
        let media_type = json!({"mimeType": "application/vnd.protolabs.cost-v1+json"});
        assert_eq!((part.metadata.as_ref().unwrap(), artifact.extensions.len()), (&media_type.into(), 1));
        let silent = reported(ActiveExtensions::NONE, &end);
        assert_eq!((silent.extensions, silent.parts), (vec![], vec![]));
    }

    #[test]
    fn a_cost_is_counted_here_if_the_plugin_gives_none_and_never_invented() {
        let cost = |meta: Value, tokens| {
            let meta = members(meta);
            cost(&CallEnd { meta: &meta, tokens, took_ms: 5, success: true })
        };
        let counted =
            json!({"usage": {"input_tokens": 11, "output_tokens": 3}, "durationMs": 5, "success": true});
        assert_eq!(cost(json!({}), (11, 3)).unwrap(), counted);
        for wrong in [
            json!({}),
            json!({"input_tokens": 1}),
            json!({"input_tokens": -1, "output_tokens": 1}),
            json!({"input_tokens": 1.5, "output_tokens": 1}),
            json!({"input_tokens": "1", "output_tokens": 1}),
        ] {
            let meta = json!({COST.uri: {"usage": wrong, "costUsd": -1, "durationMs": "x"}});
            assert_eq!(cost(meta.clone(), (11, 3)).unwrap(), counted, "{wrong}");
            assert_eq!(cost(meta, (0, 0)), None, "{wrong}");
        }
    }

    #[test]
    fn changes_of_the_world_are_whole_or_left_out() {
        let value = |deltas: Value| worldstate(&json!({"deltas": deltas, "other": 1}).into());
        let deltas = json!([
            {"domain": "board", "path": "a.b", "op": "inc", "value": 1},
            {"domain": "board", "path": "c", "op": "set", "value": null},
            {"domain": "board", "path": "d", "op": "push", "value": {"n": 1}},
        ]);
        assert_eq!(value(deltas.clone()).unwrap(), json!({"deltas": deltas}));
        for wrong in [
            json!([]),
            json!({}),
            json!([{"domain": "board", "path": "a", "op": "drop", "value": 1}]),
            json!([{"domain": "board", "path": 1, "op": "set", "value": 1}]),
            json!([{"domain": "board", "path": "a", "op": "set"}]),
            json!(vec![deltas[0].clone(); MAX_DELTAS + 1]),
        ] {
            assert_eq!(value(wrong.clone()), None, "{wrong}");
        }
    }

    #[test]
    fn skills_are_data_parts_of_their_media_type() {
        let skill = json!({
            "name": "n", "description": "d", "prompt_template": "p {x}", "tools_used": ["a"],
            "created_at": "2026-06-01T10:00:00+00:00", "source_session_id": "s",
        });
        let parts = |given: Value| skills(&members(json!({SKILL: given})));
        for given in [skill.clone(), json!([skill, {"name": "half"}])] {
            let found = parts(given);
            let [part] = found.as_slice() else { panic!("{found:?}") };
            assert!(matches!(&part.content, PartContent::Data(value) if *value == skill));
            assert_eq!(part.media_type.as_deref(), Some(SKILL));
        }
        assert_eq!(parts(json!(vec![skill; MAX_SKILLS + 1])).len(), MAX_SKILLS);
        assert_eq!(parts(json!("n")), vec![]);
        assert!(is_value(SKILL) && is_value(COST.uri) && !is_value("k"));
    }

    #[test]
    fn the_use_of_a_tool_is_metadata_without_parts_or_a_data_part() {
        let ids = TaskIds { task: "t".into(), context: "c".into() };
        let used = |step| ToolUse { id: "u-1".into(), name: "echo".into(), step };
        let message = |active: ActiveExtensions, step| active.tool_message(&ids, 6, &used(step));
        for (step, phase, name) in [
            (ToolStep::Started { args: "x".into() }, "started", "args"),
            (ToolStep::Completed { result: "x".into() }, "completed", "result"),
            (ToolStep::Failed { error: "x".into() }, "failed", "error"),
        ] {
            let value = json!({"toolCallId": "u-1", "name": "echo", "phase": phase, name: "x"});
            let new = message(active(Generation::V10), step.clone()).unwrap();
            assert_eq!((new.parts.len(), new.metadata.unwrap()), (0, json!({TOOL_CALL.uri: value}).into()));
            assert_eq!((new.message_id.as_str(), new.extensions), ("t/6", vec![TOOL_CALL.uri.to_owned()]));
            let old = message(active(Generation::V03), step.clone()).unwrap();
            assert!(matches!(&old.parts[0].content, PartContent::Data(shown) if *shown == value));
            assert_eq!((old.parts.len(), old.metadata), (1, None));
            assert_eq!(message(ActiveExtensions::NONE, step), None);
        }
    }
}
