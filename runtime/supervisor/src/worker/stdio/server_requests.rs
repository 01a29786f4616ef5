//! Requests of a server to its client, until they are answered.
//!
//! Refuses requests that belong to no call, and that exceed the number of open ones per call; the gateway refuses those
//! that no client may answer. Keeps true: each request is answered once, even if its call ends first.

use std::collections::BTreeMap;

use asp_json::Json;
use asp_proto::plugin::{DeliverMcpAnswer, Json as JsonText, McpRequested};
use serde_json::Value;

use super::wire::server_id;

/// Maximum number of open requests: that of one call (plugin.proto), since only a single running call has any.
const MAX_OPEN: usize = 16;
/// Maximum size of the parameters in bytes, as JSON text: a little more than the gateway accepts in a sampling request
/// with an image.
const MAX_PARAMS: usize = (1 << 20) + 1024;
const INVALID_PARAMS: i64 = -32602;
/// JSON-RPC 2.0: implementation-defined server errors.
const REFUSED: i64 = -32000;

#[derive(Debug, Default)]
pub(super) struct ServerRequests {
    next: u64,
    open: BTreeMap<u64, OpenRequest>,
}

#[derive(Debug)]
struct OpenRequest {
    /// The id of the call's request to the server.
    call: u64,
    request_id: String,
    /// The server's own id.
    id: Json,
}

impl ServerRequests {
    /// Registers a request and returns the question to ask. `Err`: the line that refuses the request.
    pub(super) fn begin(
        &mut self,
        only: Option<(u64, String)>,
        id: Json,
        method: String,
        params: &Json,
    ) -> Result<McpRequested, String> {
        let Some((call, request_id)) = only else {
            let text = "the request belongs to no running call, or to one of several: send it within a call, and \
                        set runtime.pool.concurrency of the spec to 1";
            return Err(error(&id, REFUSED, text));
        };
        if self.open.len() >= MAX_OPEN {
            return Err(error(&id, REFUSED, "too many requests are open: wait for an answer first"));
        }
        if params.text().len() > MAX_PARAMS {
            return Err(error(&id, INVALID_PARAMS, "the request is too large: send at most 1 MiB"));
        }
        self.next += 1;
        let question = McpRequested {
            request_id: request_id.clone(),
            correlation_id: self.next.to_string(),
            method,
            params: Some(JsonText { value: params.text().as_bytes().to_vec() }),
            withdrawn: false,
        };
        self.open.insert(self.next, OpenRequest { call, request_id, id });
        Ok(question)
    }

    /// Returns the line that answers the server; `None` if it no longer waits.
    pub(super) fn answer(&mut self, answer: DeliverMcpAnswer) -> Option<String> {
        let number: u64 = answer.correlation_id.parse().ok()?;
        if self.open.get(&number)?.request_id != answer.request_id {
            return None;
        }
        let open = self.open.remove(&number)?;
        let result = answer.result.and_then(|json| Json::parse(&json.value).ok());
        Some(match result {
            Some(result) => format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, open.id),
            None => error(&open.id, answer.error_code, &answer.error_message),
        })
    }

    /// Removes a request that the server withdraws; returns the notice for its call.
    pub(super) fn withdraw(&mut self, params: &Json) -> Option<McpRequested> {
        let id = server_id(params.member("requestId")?.text())?;
        let number = self.open.iter().find(|(_, open)| open.id == id).map(|(number, _)| *number)?;
        let open = self.open.remove(&number)?;
        Some(McpRequested {
            request_id: open.request_id,
            correlation_id: number.to_string(),
            withdrawn: true,
            ..McpRequested::default()
        })
    }

    /// Returns the lines that answer the open requests of a call that has ended.
    pub(super) fn close(&mut self, call: u64) -> Vec<String> {
        let ended = self.open.extract_if(.., |_, open| open.call == call);
        ended.map(|(_, open)| error(&open.id, REFUSED, "the call that this belongs to has ended")).collect()
    }
}

fn error(id: &Json, code: i64, message: &str) -> String {
    let message = Value::from(message);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn code(line: &str) -> Option<i64> {
        serde_json::from_str::<Value>(line).unwrap()["error"]["code"].as_i64()
    }

    fn roots(asked: &mut ServerRequests, id: u64) -> Result<McpRequested, String> {
        asked.begin(Some((3, "r".into())), id.into(), "roots/list".into(), &Json::part("{}"))
    }

    #[test]
    fn what_nobody_can_answer_is_refused_at_once() {
        let mut asked = ServerRequests::default();
        let mut refused = |only: Option<(u64, &str)>, method: &str, params: Value| {
            let only = only.map(|(id, call)| (id, call.to_owned()));
            asked.begin(only, 1.into(), method.into(), &params.into()).map_err(|line| code(&line)).err()
        };
        let call = Some((3, "r"));
        assert_eq!(refused(None, "roots/list", json!({})), Some(Some(REFUSED)));
        let large = json!({"x": "x".repeat(MAX_PARAMS)});
        assert_eq!(refused(call, "sampling/createMessage", large), Some(Some(INVALID_PARAMS)));
        for id in 0..MAX_OPEN as u64 {
            assert!(roots(&mut asked, id).is_ok());
        }
        assert_eq!(code(&roots(&mut asked, 99).unwrap_err()), Some(REFUSED), "one more than may be open");
    }

    #[test]
    fn each_request_is_answered_once_also_when_its_call_ends() {
        let mut asked = ServerRequests::default();
        let ids: Vec<String> = (0..3).map(|id| roots(&mut asked, id).unwrap().correlation_id).collect();
        let answer = |id: &str, call: &str| DeliverMcpAnswer {
            request_id: call.into(),
            correlation_id: id.into(),
            result: Some(JsonText { value: b"{\"roots\": [1e400]}".to_vec() }),
            ..DeliverMcpAnswer::default()
        };
        assert_eq!(asked.answer(answer(&ids[0], "another")), None, "an answer of another call");
        let line = asked.answer(answer(&ids[0], "r")).unwrap();
        assert_eq!(line, r#"{"jsonrpc":"2.0","id":0,"result":{"roots": [1e400]}}"#);
        assert_eq!(asked.answer(answer(&ids[0], "r")), None);
        let withdrawn = asked.withdraw(&json!({"requestId": 1}).into()).unwrap();
        assert_eq!((withdrawn.withdrawn, withdrawn.correlation_id), (true, ids[1].clone()));
        assert!(asked.close(4).is_empty());
        let closed = asked.close(3);
        assert_eq!(closed.iter().map(|line| code(line)).collect::<Vec<_>>(), [Some(REFUSED)]);
        assert_eq!(asked.answer(answer(&ids[2], "r")), None);
    }
}
