//! A call's questions as MCP server requests, and client results as answers.
//!
//! Both eras use the same requests, `elicitation/create`, `sampling/createMessage` and `roots/list`, but send them
//! differently (a message on the stream, a member of `inputRequests`).

use asp_call::call::ClientAbilities;
use asp_call::call::question::{Answer, Ask, Question, Questions};
use asp_json::{Json, Members};
use asp_proto::mcp_revision::{Feature, Revision};
use serde_json::{Value, json};

/// Maximum number of roots of one client.
const MAX_ROOTS: usize = 1000;

/// Returns the method and the parameters of the request for `question`. `id` identifies a page in revisions that report
/// when the user is done there (2025-11-25, `elicitationId`).
pub(crate) fn request(question: &Question, id: Option<&str>) -> (&'static str, Json) {
    match &question.ask {
        Ask::Page { message, url } => {
            let mut params = json!({"mode": "url", "message": message, "url": url});
            if let (Some(id), Some(params)) = (id, params.as_object_mut()) {
                params.insert("elicitationId".into(), id.into());
            }
            ("elicitation/create", params.into())
        }
        Ask::Form { message, requested_schema, .. } => {
            let mut params = Members::default();
            params.insert("message", message.as_str());
            params.insert("requestedSchema", requested_schema.clone());
            ("elicitation/create", params.to_json())
        }
        Ask::Sampling(params) => ("sampling/createMessage", params.clone()),
        Ask::Roots => ("roots/list", json!({}).into()),
    }
}

/// Returns the same in the form of a revision: a client of an earlier one than 2025-11-25 does not know titled choices, and
/// would let its user type anything.
pub(super) fn request_in(question: &Question, id: Option<&str>, revision: Revision) -> (&'static str, Json) {
    let (method, params) = request(question, id);
    let known = match &question.ask {
        Ask::Form { requested_schema, .. } if !revision.has(Feature::TitledChoices) => {
            with_enum_names(requested_schema)
        }
        Ask::Form { .. } | Ask::Page { .. } | Ask::Sampling(_) | Ask::Roots => None,
    };
    let Some(known) = known else { return (method, params) };
    let mut members = Members::of(&params);
    members.insert("requestedSchema", known);
    (method, members.to_json())
}

/// Returns a form with the titles of its choices in `enumNames` (2025-06-18, `EnumSchema`); `None` if it has no titles.
fn with_enum_names(schema: &Json) -> Option<Json> {
    let fields = Members::of(&schema.member("properties")?);
    if !fields.iter().any(|(_, field)| enumerated(field).is_some()) {
        return None;
    }
    let known = fields.iter().map(|(name, field)| (name, enumerated(field).unwrap_or_else(|| field.clone())));
    let known: Members = known.collect();
    let mut form = Members::of(schema);
    form.insert("properties", known.to_json());
    Some(form.to_json())
}

/// Returns a field with one of several titled texts as an `enum`; `None` for any other field.
fn enumerated(field: &Json) -> Option<Json> {
    if field.get("type").and_then(Value::as_str) != Some("string") || field.get("enum").is_some() {
        return None;
    }
    let name = ["oneOf", "anyOf"].into_iter().find(|name| field.get(*name).is_some())?;
    let mut values = Vec::new();
    let mut titles = Vec::new();
    for choice in field.member(name)?.elements()? {
        let value = choice.member("const").filter(|value| value.is_string())?;
        let title = choice.member("title").filter(|title| title.is_string());
        titles.push(title.unwrap_or_else(|| value.clone()));
        values.push(value);
    }
    let mut known = Members::of(field);
    known.remove(name);
    known.insert("enum", array(&values));
    known.insert("enumNames", array(&titles));
    Some(known.to_json())
}

fn array(items: &[Json]) -> Json {
    let texts: Vec<&str> = items.iter().map(Json::text).collect();
    Json::part(format!("[{}]", texts.join(",")))
}

/// Converts a client's result into the answer to `question`; `None` if it is not a result of that request.
pub(crate) fn answer(question: &Question, result: &Json) -> Option<Answer> {
    match &question.ask {
        Ask::Form { .. } | Ask::Page { .. } => match result.get("action")?.as_str()? {
            "accept" => {
                Some(Answer::Accepted(result.member("content").unwrap_or_else(|| Value::Null.into())))
            }
            "decline" => Some(Answer::Declined),
            "cancel" => Some(Answer::Cancelled),
            _ => None,
        },
        Ask::Sampling(_) => {
            let content = result.get("content")?;
            (content.is_object() || content.is_array()).then(|| Answer::Sampled(result.clone()))
        }
        Ask::Roots => {
            let roots = result.get("roots")?.as_array()?;
            let is_root = |root: &Value| root.get("uri").is_some_and(Value::is_string);
            if roots.len() > MAX_ROOTS || !roots.iter().all(is_root) {
                return None;
            }
            result.member("roots").map(Answer::Roots)
        }
    }
}

/// Converts a client's results, keyed by question id, into answers. Invalid ones are left out, and their questions stay
/// open.
pub(super) fn answers(questions: &Questions, results: &Json) -> Vec<(String, Answer)> {
    let answered = |(id, result): (&str, &Json)| Some((id.to_owned(), answer(&questions.find(id)?, result)?));
    Members::of(results).iter().filter_map(answered).collect()
}

/// Returns the requests for questions, keyed by question id.
pub(super) fn requests(asked: &[Question]) -> Json {
    let requests = asked.iter().map(|question| (question.id.as_str(), whole(request(question, None))));
    requests.collect::<Members>().to_json()
}

/// Returns a request as an object of its method and its parameters.
pub(crate) fn whole((method, params): (&str, Json)) -> Json {
    let mut request = Members::default();
    request.insert("method", method);
    request.insert("params", params);
    request.to_json()
}

/// Returns the substitute for an answer if the client sent an error or something unreadable.
pub(crate) fn no_answer(question: &Question, error: Option<&Value>) -> Answer {
    match &question.ask {
        Ask::Form { relayed: false, .. } | Ask::Page { .. } => Answer::Cancelled,
        // An upstream must not receive a decision that no user made.
        Ask::Form { relayed: true, .. } | Ask::Sampling(_) | Ask::Roots => {
            let said = error.and_then(|error| error.get("message")?.as_str());
            Answer::Failed(said.unwrap_or("the client gave no answer").to_owned())
        }
    }
}

/// Returns the abilities of a client of `revision` that declares `capabilities`.
pub(super) fn abilities(capabilities: Option<&Value>, revision: Revision) -> ClientAbilities {
    let has_modes = revision.has(Feature::ElicitationModes);
    let declared = |name: &str| capabilities.and_then(|capabilities| capabilities.get(name)?.as_object());
    // Some clients write every member they know, with null for those they do not support.
    let has = |name: &str, member: &str| {
        declared(name).and_then(|more| more.get(member)).is_some_and(|member| !member.is_null())
    };
    ClientAbilities {
        // No mode means forms (2025-11-25, elicitation capabilities); earlier revisions had only forms.
        elicitation: declared("elicitation").is_some_and(|modes| {
            !has_modes || modes.values().all(Value::is_null) || has("elicitation", "form")
        }),
        pages: has("elicitation", "url"),
        sampling: declared("sampling").is_some(),
        sampling_tools: has("sampling", "tools"),
        sampling_context: has("sampling", "context"),
        roots: declared("roots").is_some(),
        roots_change: declared("roots")
            .is_some_and(|roots| roots.get("listChanged") == Some(&Value::Bool(true))),
        // Only the modern era has tasks.
        tasks: false,
        late_arguments: false,
    }
    .within(revision)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(question: &Question, result: &Value) -> Option<Answer> {
        super::answer(question, &result.clone().into())
    }

    #[test]
    fn answers_are_as_they_were_written() {
        let part = r#"{"n":340282366920938463463374607431768211455,"d":1.50,"s":"\ud83d"}"#;
        let roots = Question { id: "r".into(), ask: Ask::Roots };
        for (question, told, kept) in [
            (form(), format!(r#"{{"action":"accept","content":{part}}}"#), part.to_owned()),
            (sampling(), format!(r#"{{"content":{part}}}"#), format!(r#"{{"content":{part}}}"#)),
            (
                roots,
                format!(r#"{{"roots":[{{"uri":"a","_meta":{part}}}]}}"#),
                format!(r#"[{{"uri":"a","_meta":{part}}}]"#),
            ),
        ] {
            let told = Json::parse(told.as_bytes()).unwrap();
            let answer = super::answer(&question, &told).unwrap();
            let stored = serde_json::to_vec(&answer).unwrap();
            let read: Answer = serde_json::from_slice(&stored).unwrap();
            let (Answer::Accepted(read) | Answer::Sampled(read) | Answer::Roots(read)) = read else {
                panic!("{read:?}")
            };
            assert_eq!(read.text(), kept);
        }
    }

    #[test]
    fn questions_are_stored_and_asked_as_they_were_written() {
        let part = r#"{"n":340282366920938463463374607431768211455,"d":1.50,"s":"\ud83d"}"#;
        let json = || Json::parse(part.as_bytes()).unwrap();
        let form = Ask::Form { message: "?".into(), requested_schema: json(), relayed: true };
        for (ask, asked) in [
            (form, format!(r#"{{"message":"?","requestedSchema":{part}}}"#)),
            (Ask::Sampling(json()), part.to_owned()),
        ] {
            let question = Question { id: "q".into(), ask };
            let stored = serde_json::to_string(&question).unwrap();
            assert!(stored.contains(part), "{stored}");
            let read: Question = serde_json::from_str(&stored).unwrap();
            assert_eq!(request(&read, None).1.text(), asked);
            let all = requests(&[read]);
            assert!(all.text().starts_with(r#"{"q":{"method":"#) && all.text().contains(&asked), "{all}");
        }
    }

    #[test]
    fn choices_are_written_as_the_revision_of_the_client_knows_them() {
        let asked = |schema: &Json, revision| {
            let ask = Ask::Form { message: "?".into(), requested_schema: schema.clone(), relayed: true };
            let (method, params) = request_in(&Question { id: "f".into(), ask }, None, revision);
            assert_eq!((method, &params["message"]), ("elicitation/create", &json!("?")));
            params.member("requestedSchema").unwrap()
        };
        let titled = Json::parse(
            br#"{"type": "object", "properties": {"n": {"type": "integer"}, "size": {"type": "string", "title": "Size",
                "oneOf": [{"const": "s", "title": "Small"}, {"const": "l"}]}}, "required": ["size"]}"#,
        )
        .unwrap();
        for revision in [Revision::V2025_11_25, Revision::V2026_07_28] {
            assert_eq!(asked(&titled, revision).text(), titled.text());
        }
        let size =
            json!({"type": "string", "title": "Size", "enum": ["s", "l"], "enumNames": ["Small", "l"]});
        let known = json!({"type": "object", "properties": {"n": {"type": "integer"}, "size": size},
                           "required": ["size"]});
        assert_eq!(asked(&titled, Revision::V2025_06_18), known);
        for same in [
            r#"{"properties": {"n": {"type": "integer"}}}"#,
            r#"{"properties": {"n": {"type": "integer", "oneOf": [{"const": 1, "title": "One"}]}}}"#,
            r#"{"properties": {"s": {"type": "string", "enum": ["a"], "oneOf": [{"const": "a"}]}}}"#,
            r#"{"properties": {"s": {"type": "string", "oneOf": [{"const": "a"}, {"minLength": 9}]}}}"#,
            r#"{"type": "object"}"#,
        ] {
            let schema = Json::parse(same.as_bytes()).unwrap();
            assert_eq!(asked(&schema, Revision::V2025_06_18).text(), same);
        }
    }

    #[test]
    fn questions_that_other_versions_stored_are_read() {
        let schema = json!({"type": "object", "properties": {}});
        let form = json!({"Form": {"message": "?", "requested_schema": schema, "relayed": true}});
        let without = json!({"Form": {"message": "?", "requested_schema": schema}});
        let sampling = json!({"Sampling": {"messages": [], "maxTokens": 1}});
        let requested_schema = Json::from(schema);
        let ask =
            |relayed| Ask::Form { message: "?".into(), requested_schema: requested_schema.clone(), relayed };
        for (stored, read) in [
            (form, ask(true)),
            (without, ask(false)),
            (sampling, Ask::Sampling(json!({"messages": [], "maxTokens": 1}).into())),
            (json!("Roots"), Ask::Roots),
        ] {
            assert_eq!(serde_json::from_str::<Ask>(&stored.to_string()).unwrap(), read, "{stored}");
        }
    }

    fn form() -> Question {
        Question {
            id: "f".into(),
            ask: Ask::Form { message: "?".into(), requested_schema: json!({}).into(), relayed: false },
        }
    }

    fn sampling() -> Question {
        Question { id: "s".into(), ask: Ask::Sampling(json!({}).into()) }
    }

    #[test]
    fn only_the_three_actions_are_answers_to_a_form() {
        assert_eq!(answer(&form(), &json!({"action": "accept"})), Some(Answer::Accepted(Value::Null.into())));
        assert_eq!(answer(&form(), &json!({"action": "decline"})), Some(Answer::Declined));
        assert_eq!(answer(&form(), &json!({"action": "cancel"})), Some(Answer::Cancelled));
        for bad in [json!({}), json!({"action": "yes"}), json!({"action": 1}), json!([]), Value::Null] {
            assert_eq!(answer(&form(), &bad), None);
        }
    }

    #[test]
    fn a_model_answers_with_content_or_not_at_all() {
        let said = json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "x"}});
        assert_eq!(answer(&sampling(), &said), Some(Answer::Sampled(said.clone().into())));
        for bad in [json!({}), json!({"content": "x"}), json!({"action": "accept"}), Value::Null] {
            assert_eq!(answer(&sampling(), &bad), None);
        }
        let refused = json!({"code": -1, "message": "User rejected sampling request"});
        let failed = Answer::Failed("User rejected sampling request".into());
        assert_eq!(no_answer(&sampling(), Some(&refused)), failed);
        assert_eq!(no_answer(&form(), Some(&refused)), Answer::Cancelled);
    }

    #[test]
    fn a_client_tells_roots_with_addresses_or_none() {
        let asked = Question { id: "r".into(), ask: Ask::Roots };
        assert_eq!(request(&asked, None), ("roots/list", Json::from(json!({}))));
        let root = json!({"uri": "file:///src", "name": "Sources"});
        let told = json!({"roots": [root], "_meta": {}});
        assert_eq!(answer(&asked, &told), Some(Answer::Roots(json!([root]).into())));
        assert_eq!(answer(&asked, &json!({"roots": []})), Some(Answer::Roots(json!([]).into())));
        let many = vec![root.clone(); MAX_ROOTS + 1];
        for bad in [json!({}), json!({"roots": {}}), json!({"roots": [{}]}), json!({"roots": many})] {
            assert_eq!(answer(&asked, &bad), None);
        }
    }

    #[test]
    fn a_page_is_known_by_its_id_where_the_revision_has_one() {
        let ask = Ask::Page { message: "Pay".into(), url: "https://pay.example.com/".into() };
        let asked = Question { id: "p".into(), ask };
        let mut params = json!({"mode": "url", "message": "Pay", "url": "https://pay.example.com/"});
        assert_eq!(request(&asked, None), ("elicitation/create", Json::from(params.clone())));
        params["elicitationId"] = "c.p".into();
        assert_eq!(request(&asked, Some("c.p")), ("elicitation/create", Json::from(params)));
        assert_eq!(answer(&asked, &json!({"action": "accept"})), Some(Answer::Accepted(Value::Null.into())));
        assert_eq!(no_answer(&asked, None), Answer::Cancelled);
    }

    #[test]
    fn what_a_client_declares_is_what_it_can_do() {
        let none = ClientAbilities::default();
        let form = ClientAbilities { elicitation: true, ..none };
        let sampling = ClientAbilities { sampling: true, ..none };
        for (capabilities, can) in [
            (json!({"elicitation": {}}), form),
            (json!({"elicitation": {"form": {}, "url": {}}}), ClientAbilities { pages: true, ..form }),
            (json!({"elicitation": {"url": {}}}), ClientAbilities { pages: true, ..none }),
            (json!({"elicitation": {"form": {}, "url": null}}), form),
            (json!({"elicitation": {"form": null, "url": null}, "sampling": null, "roots": null}), form),
            (json!({"sampling": {}}), sampling),
            (json!({"sampling": {"tools": null, "context": null}}), sampling),
            (json!({"sampling": {"tools": {}}}), ClientAbilities { sampling_tools: true, ..sampling }),
            (json!({"sampling": {"context": {}}}), ClientAbilities { sampling_context: true, ..sampling }),
            (json!({"roots": {}}), ClientAbilities { roots: true, ..none }),
            (json!({"roots": {"listChanged": 1}}), ClientAbilities { roots: true, ..none }),
            (json!({"elicitation": true, "sampling": 1, "roots": []}), none),
        ] {
            for revision in [Revision::V2025_11_25, Revision::V2026_07_28] {
                assert_eq!(abilities(Some(&capabilities), revision), can, "{capabilities}");
            }
        }
        assert_eq!(abilities(None, Revision::V2026_07_28), none);
        let changing = json!({"roots": {"listChanged": true}});
        for (revision, says) in [(Revision::V2025_03_26, true), (Revision::V2026_07_28, false)] {
            assert_eq!(abilities(Some(&changing), revision).roots_change, says);
        }
        for modes in [json!({}), json!({"url": {}}), json!({"form": {}})] {
            let capabilities = json!({"elicitation": modes});
            assert_eq!(abilities(Some(&capabilities), Revision::V2025_06_18), form, "{modes}");
        }
    }
}
