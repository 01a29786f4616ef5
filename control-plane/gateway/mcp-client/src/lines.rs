//! MCP with stdio servers, whose lines a language runtime carries (`LineRequest`, `LineProtocol`).
//!
//! Owns: the handshake that a runtime performs with each process, the parameters of a request, and the reading of answers
//! and notifications. Refuses: knowledge of tunnels; who uses it sends the requests. Keeps true: what is read is bounded
//! and judged as from an upstream over HTTP.

use asp_json::{Json, Members, held};
use asp_proto::mcp_revision::Revision;
use asp_proto::plugin::{DeliverMcpAnswer, Json as Sent, LineAnswer, LineNotification, McpRequested};
use asp_proto::supervisor::{LineMessage, LineProtocol};
use serde_json::{Value, json};

use crate::client::downstream::RpcError;
use crate::client::session::{Offers, UPDATED};
use crate::client::{ClientFault, ClientParams, MAX_PAGE, ServerEvent};
use crate::listing::{self, Lister, Lists};
use crate::message::{self, UpstreamObject};

/// First request to a process; a runtime answers it to every call from what the process has answered.
const INITIALIZE: &str = "initialize";
const LOG: &str = "notifications/message";
/// Notifications of a server whose lists have changed.
const LISTS_CHANGED: [&str; 3] = [
    "notifications/tools/list_changed",
    "notifications/resources/list_changed",
    "notifications/prompts/list_changed",
];
/// Log level requested from a server; each client of a call gets the levels that it asked for.
const LOG_LEVEL: &str = "debug";

/// Returns the words of MCP that a runtime needs to talk to the processes of a stdio server.
pub fn protocol() -> LineProtocol {
    // The processes serve many clients, and whether one of them can answer is known only at the time of a request.
    // Elicitation without a mode means forms: a server cannot send a user to a page that no spec names. Roots belong to a
    // call's client and come and go with it, so no change of them is reported.
    let capabilities = json!({"elicitation": {}, "sampling": {"tools": {}}, "roots": {}});
    let greeting = json!({"protocolVersion": Revision::LATEST_LEGACY.as_str(), "capabilities": capabilities,
                          "clientInfo": {"name": "asp", "version": env!("CARGO_PKG_VERSION")}});
    let request = |method: &str, params: &Value, if_object: &str| LineMessage {
        method: method.to_owned(),
        params: params.to_string(),
        is_request: true,
        if_object: if_object.to_owned(),
    };
    let initialized =
        LineMessage { method: "notifications/initialized".to_owned(), ..LineMessage::default() };
    LineProtocol {
        first: Some(request(INITIALIZE, &greeting, "")),
        after: vec![
            initialized,
            request("logging/setLevel", &json!({"level": LOG_LEVEL}), "/capabilities/logging"),
        ],
        ping: "ping".to_owned(),
        cancelled: "notifications/cancelled".to_owned(),
        token: "progressToken".to_owned(),
        log: LOG.to_owned(),
        shared: LISTS_CHANGED.map(str::to_owned).into(),
    }
}

/// Returns the parameters of a request: those that the call's client sent, and the gateway's own.
pub fn params(sent: &ClientParams, own: &Value) -> Sent {
    Sent { value: sent.params(own, &Members::default()).text().as_bytes().to_vec() }
}

/// Returns the result of an answer, or the server's own error.
pub fn outcome(answer: &LineAnswer) -> Result<UpstreamObject, ClientFault> {
    if let Some(error) = &answer.error {
        let error = parse(error)?;
        let data = error.member("data").filter(|data| !data.is_null());
        return Err(message::failure(&error, data).into());
    }
    let result = answer.result.as_ref().ok_or_else(|| unusable("the server's answer has no result"))?;
    UpstreamObject::of(parse(result)?)
        .ok_or_else(|| unusable("the server's answer is malformed: result is not an object"))
}

/// Returns the result of an answer that has one page of a list, which is bounded as over HTTP.
pub fn page(answer: &LineAnswer) -> Result<UpstreamObject, ClientFault> {
    if answer.result.as_ref().is_some_and(|result| result.value.len() > MAX_PAGE) {
        return Err(unusable(
            "the server's answer has more than 4 MiB (4194304 bytes), the limit of one page",
        ));
    }
    outcome(answer)
}

/// A notification of a server within a call.
#[derive(Debug, PartialEq)]
pub enum LineEvent {
    /// Progress or a log message.
    Server(ServerEvent),
    /// The resource with this URI has changed.
    Updated(String),
    /// The server lists other items.
    ListsChanged,
}

/// Reads a notification; `None` if it has no meaning for a call.
pub fn event(notification: &LineNotification) -> Option<LineEvent> {
    let method = notification.method.as_str();
    if LISTS_CHANGED.contains(&method) {
        return Some(LineEvent::ListsChanged);
    }
    let params = UpstreamObject::of(parse(notification.params.as_ref()?).ok()?)?;
    if method == UPDATED {
        return params.get("uri")?.as_str().map(|uri| LineEvent::Updated(uri.to_owned()));
    }
    // The runtime has found the call that it belongs to.
    message::server_event(method, &params).map(LineEvent::Server)
}

/// Returns the answer to a request of a server for which there is no client.
pub fn refusal(request: &McpRequested) -> DeliverMcpAnswer {
    let RpcError { code, message } = RpcError::unknown_method();
    DeliverMcpAnswer {
        request_id: request.request_id.clone(),
        correlation_id: request.correlation_id.clone(),
        error_code: code,
        error_message: message.into_owned(),
        ..DeliverMcpAnswer::default()
    }
}

/// Lists everything that a stdio server has; returns also whether it reports changes of its lists.
pub async fn list(server: &mut dyn Lister) -> Result<(Lists, bool), ClientFault> {
    let greeting = server.ask(INITIALIZE, json!({})).await?;
    // Nobody asks a stdio server for values of arguments.
    let offers = Offers { completions: false, ..Offers::of(&greeting) };
    let lists = listing::list_all(server, offers, None).await?;
    Ok((lists, offers.list_changes))
}

fn parse(sent: &Sent) -> Result<Json, ClientFault> {
    if held::is_too_much(&sent.value) {
        return Err(unusable("the server's answer holds too many JSON values"));
    }
    Json::parse(&sent.value).map_err(|_| unusable("the server's answer is not JSON"))
}

fn unusable(why: &str) -> ClientFault {
    ClientFault::Lost(why.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use async_trait::async_trait;

    use super::*;

    fn sent(text: &str) -> Option<Sent> {
        Some(Sent { value: text.as_bytes().to_vec() })
    }

    fn notified(method: &str, params: &str) -> Option<LineEvent> {
        event(&LineNotification { request_id: "r".into(), method: method.into(), params: sent(params) })
    }

    #[test]
    fn the_handshake_declares_what_a_client_of_a_call_may_answer() {
        let protocol = protocol();
        let first: Value = serde_json::from_str(&protocol.first.unwrap().params).unwrap();
        let can = json!({"elicitation": {}, "sampling": {"tools": {}}, "roots": {}});
        assert_eq!(first["capabilities"], can);
        assert_eq!(first["protocolVersion"], Revision::LATEST_LEGACY.as_str());
        let [initialized, level] = &protocol.after[..] else { panic!("{:?}", protocol.after) };
        assert!(!initialized.is_request && initialized.params.is_empty());
        assert_eq!((level.is_request, level.if_object.as_str()), (true, "/capabilities/logging"));
    }

    #[test]
    fn a_clients_parameters_go_out_as_they_were_written() {
        let arguments = Json::part(r#"{"n":1.50,"s":"\ud83d"}"#);
        let client = ClientParams { arguments: Some(arguments), meta: Members::from_iter([("a/b", "c")]) };
        let own = json!({"name": "t", "_meta": {"progressToken": "r"}});
        let params = String::from_utf8(params(&client, &own).value).unwrap();
        assert!(params.contains(r#""arguments":{"n":1.50,"s":"\ud83d"}"#), "{params}");
        let params: Value = serde_json::from_str(&params.replace(r"\ud83d", "")).unwrap();
        assert_eq!(params["_meta"], json!({"a/b": "c", "progressToken": "r"}));
    }

    #[test]
    fn an_error_keeps_its_code_and_its_data_and_a_result_its_text() {
        for (error, code, message, data) in [
            (r#"{"code":-32602,"message":"no","data":{"n":1.50}}"#, -32602, "no", Some(r#"{"n":1.50}"#)),
            (r#"{"code":1001.0,"message":"no","data":null}"#, 1001, "no", None),
            (r#""no such tool""#, -32603, "no such tool", None),
            (r#"{"code":"E1","message":"no number"}"#, -32603, "no number", None),
        ] {
            let answer = LineAnswer { error: sent(error), ..LineAnswer::default() };
            let Err(ClientFault::Error { code: read, message: said, data: more, .. }) = outcome(&answer)
            else {
                panic!("{error}")
            };
            assert_eq!((read, said.as_str()), (code, message), "{error}");
            assert_eq!(more.as_ref().map(Json::text), data, "{error}");
        }
        let text = r#"{"content":[],"structuredContent":{"n":1e400,"a":"\ud83d"}}"#;
        let answer = LineAnswer { result: sent(text), ..LineAnswer::default() };
        assert_eq!(outcome(&answer).unwrap().sent.text(), text);
        let answer = LineAnswer { result: sent("[]"), ..LineAnswer::default() };
        assert_eq!(outcome(&answer).unwrap(), UpstreamObject::default(), "an object of PHP without members");
        for bad in [None, sent("7"), sent("[{}]"), sent("{"), sent("")] {
            let answer = LineAnswer { result: bad, ..LineAnswer::default() };
            assert!(matches!(outcome(&answer), Err(ClientFault::Lost(_))), "{answer:?}");
        }
    }

    #[test]
    fn a_notification_is_progress_a_log_an_update_or_nothing() {
        let progress = notified(
            "notifications/progress",
            r#"{"progressToken":"r","progress":1.50,"total":4,"message":"m"}"#,
        );
        let Some(LineEvent::Server(ServerEvent::Progress { progress, total, message })) = progress else {
            panic!("{progress:?}")
        };
        assert_eq!((progress.text(), total.unwrap().text(), message.unwrap().as_str()), ("1.50", "4", "m"));
        let log = notified(LOG, r#"{"level":"alert","logger":"l","data":{"a":1.0}}"#);
        let Some(LineEvent::Server(ServerEvent::Log { level, logger, data })) = log else {
            panic!("{log:?}")
        };
        assert_eq!(
            (level.as_deref(), logger.as_deref(), data.text()),
            (Some("alert"), Some("l"), r#"{"a":1.0}"#)
        );
        assert_eq!(notified(UPDATED, r#"{"uri":"a:1"}"#), Some(LineEvent::Updated("a:1".into())));
        assert_eq!(notified(LISTS_CHANGED[1], "{}"), Some(LineEvent::ListsChanged));
        for nothing in [("notifications/unknown", "{}"), (UPDATED, "{}"), ("notifications/progress", "[]")] {
            assert_eq!(notified(nothing.0, nothing.1), None, "{nothing:?}");
        }
    }

    /// Answers in this order.
    struct ScriptedServer {
        answers: VecDeque<LineAnswer>,
        asked: Vec<(String, Value)>,
    }

    #[async_trait]
    impl Lister for ScriptedServer {
        async fn ask(&mut self, method: &str, params: Value) -> Result<UpstreamObject, ClientFault> {
            self.asked.push((method.to_owned(), params));
            page(&self.answers.pop_front().unwrap())
        }
    }

    async fn listed(
        answers: &[Result<Value, Value>],
    ) -> (Result<(Lists, bool), ClientFault>, Vec<(String, Value)>) {
        let answer = |answer: &Result<Value, Value>| match answer {
            Ok(result) => LineAnswer { result: sent(&result.to_string()), ..LineAnswer::default() },
            Err(error) => LineAnswer { error: sent(&error.to_string()), ..LineAnswer::default() },
        };
        let mut server = ScriptedServer { answers: answers.iter().map(answer).collect(), asked: Vec::new() };
        (list(&mut server).await, server.asked)
    }

    fn refused(code: i64) -> Result<Value, Value> {
        Err(json!({"code": code, "message": "Method not found"}))
    }

    #[tokio::test]
    async fn every_page_of_every_list_is_read_and_what_a_server_has_not_is_empty() {
        let (lists, asked) = listed(&[
            Ok(json!({"capabilities": {}})),
            Ok(json!({"tools": [{"name": "a"}], "nextCursor": "2"})),
            Ok(json!({"tools": [{"name": "b"}], "nextCursor": ""})),
            refused(-32601),
            Ok(json!({"resources": "none"})),
            Ok(json!({"resourceTemplates": [{"uriTemplate": "a:{b}"}], "nextCursor": null})),
        ])
        .await;
        let (lists, _) = lists.unwrap();
        assert_eq!(lists.tools, [json!({"name": "a"}), json!({"name": "b"})]);
        assert!(lists.prompts.is_empty() && lists.resources.is_empty() && lists.templates.len() == 1);
        let methods: Vec<&str> = asked.iter().map(|(method, _)| method.as_str()).collect();
        let [first, _, page, ..] = &asked[..] else { panic!("{asked:?}") };
        assert_eq!((first.0.as_str(), &page.1), (INITIALIZE, &json!({"cursor": "2"})));
        assert_eq!(methods.last(), Some(&"resources/templates/list"));
    }

    #[tokio::test]
    async fn half_an_emoji_in_a_list_is_named_and_keeps_nothing_out() {
        let tools = r#"{"tools":[{"name":"a","description":"cut \ud83d"},{"name":"b"}]}"#;
        let none = r#"{"capabilities":{}}"#;
        let results = [none, tools, none, none, none];
        let answers = results.map(|text| LineAnswer { result: sent(text), ..LineAnswer::default() });
        let mut server = ScriptedServer { answers: answers.into(), asked: Vec::new() };
        let (lists, _) = list(&mut server).await.unwrap();
        let described = &lists.tools[0]["description"];
        assert_eq!((lists.tools.len(), described), (2, &Value::from("cut \u{fffd}")));
        assert_eq!(lists.losses.len(), 1, "{:?}", lists.losses);
    }

    #[tokio::test]
    async fn a_list_that_a_server_does_not_declare_is_refused_in_any_words() {
        let (lists, _) = listed(&[
            Ok(json!({"capabilities": {"tools": {}, "prompts": null}})),
            Ok(json!({"tools": [{"name": "a"}]})),
            refused(-32603),
            refused(-32603),
            refused(-32603),
        ])
        .await;
        assert_eq!(lists.unwrap().0.tools.len(), 1);
        let (lists, _) = listed(&[Ok(json!({"capabilities": {"tools": {}}})), refused(-32603)]).await;
        assert!(lists.is_err(), "it has tools");
        let (lists, _) =
            listed(&[Ok(json!({"capabilities": {}})), Ok(json!({"tools": []})), refused(-32603)]).await;
        assert!(lists.is_err(), "it names no list that it has");
        let gone = [Ok(json!({})), Ok(json!({"tools": [], "nextCursor": "2"})), refused(-32601)];
        assert!(listed(&gone).await.0.is_err(), "a method that disappears during a listing is no empty list");
    }

    #[tokio::test]
    async fn a_list_ends_with_a_cursor_that_is_the_one_before_and_at_its_bound() {
        let again = Ok(json!({"tools": [{}], "nextCursor": "again"}));
        let none = || refused(-32601);
        let (lists, _) = listed(&[Ok(json!({})), again.clone(), again, none(), none(), none()]).await;
        assert_eq!(lists.unwrap().0.tools.len(), 2);
        let many = json!({"tools": vec![json!({}); 10_001]});
        let large = json!({"tools": [{"name": "x".repeat(MAX_PAGE)}]});
        for beyond in [many, large] {
            assert!(listed(&[Ok(json!({})), Ok(beyond)]).await.0.is_err());
        }
    }

    #[tokio::test]
    async fn a_cursor_that_is_no_string_is_a_fault_and_ends_no_list() {
        for (cursor, kind) in [
            (json!(2), "a number"),
            (json!(true), "a boolean"),
            (json!(["2"]), "an array"),
            (json!({}), "an object"),
        ] {
            let page = json!({"tools": [{"name": "a"}], "nextCursor": cursor});
            let (lists, _) = listed(&[Ok(json!({"capabilities": {"tools": {}}})), Ok(page)]).await;
            let fault = lists.map(|_| ()).unwrap_err().to_string();
            assert_eq!(fault, format!("tools/list: nextCursor is {kind}, not a string"));
        }
    }

    #[tokio::test]
    async fn a_server_tells_of_changes_where_it_does_of_each_list_that_it_has() {
        for (capabilities, tells) in [
            (json!({}), true),
            (json!({"tools": {"listChanged": true}, "prompts": null}), true),
            (json!({"tools": {"listChanged": true}, "resources": {}}), false),
            (json!({"tools": {"listChanged": false}}), false),
        ] {
            let greeting = Ok(json!({"capabilities": capabilities, "instructions": "i"}));
            let none = || refused(-32601);
            let (lists, _) = listed(&[greeting, none(), none(), none(), none()]).await;
            let (lists, tells_of_changes) = lists.unwrap();
            assert_eq!((tells_of_changes, lists.completions), (tells, false), "{capabilities}");
        }
    }
}
