//! The requests of a load: `tools/call` of either era with distinct arguments, or a GET, each with the next
//! token of the row.

use std::sync::atomic::{AtomicU64, Ordering};

/// Length of the argument of a call; with it a legacy body has about 600 bytes.
const ARGUMENT: usize = 512;
/// The first JSON-RPC id: all have the same number of digits, so all bodies have the same length.
const FIRST_ID: u64 = 1_000_000_000;

/// No id is used twice in a process: the gateway would answer the second from its ledger.
static NEXT_ID: AtomicU64 = AtomicU64::new(FIRST_ID);

/// The kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `tools/call` of 2025-11-25 within a session: the method and name are in the body.
    Legacy,
    /// `tools/call` of 2026-07-28: the headers mirror them.
    Modern,
    /// The same with an idempotency key, so that the gateway stores what a message stores.
    Keyed,
    /// `SendMessage` of A2A 1.0 over JSON-RPC; the tool is a skill.
    Message,
    /// A GET of the endpoint: no body at all.
    Get,
}

/// A token, and the legacy session of its principal. Not `Debug`: both let somebody in.
#[derive(Clone)]
pub(crate) struct Caller {
    pub token: String,
    pub session: String,
}

/// What a load sends.
pub(crate) struct Traffic {
    pub shape: Shape,
    /// The path of the endpoint.
    pub target: String,
    pub tool: &'static str,
    /// The value of `host`: that of the public URL, whatever row it is sent to.
    pub authority: String,
    pub callers: Vec<Caller>,
}

impl Traffic {
    /// Writes the request of a slot: slot n takes token n, modulo their number.
    pub(crate) fn write(&self, slot: u64, buffer: &mut Vec<u8>) {
        buffer.clear();
        let index = usize::try_from(slot).unwrap_or(0) % self.callers.len().max(1);
        let Some(caller) = self.callers.get(index) else { return };
        let (verb, accept) = match self.shape {
            Shape::Get => ("GET", "text/event-stream"),
            Shape::Legacy | Shape::Modern | Shape::Keyed | Shape::Message => {
                ("POST", "application/json, text/event-stream")
            }
        };
        let head = format!(
            "{verb} {} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\naccept: {accept}\r\n\
             user-agent: asp-bench\r\n",
            self.target, self.authority, caller.token
        );
        buffer.extend_from_slice(head.as_bytes());
        let session = format!("mcp-protocol-version: 2025-11-25\r\nmcp-session-id: {}\r\n", caller.session);
        match self.shape {
            Shape::Get => {
                buffer.extend_from_slice(session.as_bytes());
                buffer.extend_from_slice(b"\r\n");
            }
            Shape::Legacy => {
                buffer.extend_from_slice(session.as_bytes());
                append(buffer, &call(self.tool, ""));
            }
            Shape::Message => {
                buffer.extend_from_slice(b"a2a-version: 1.0\r\n");
                append(buffer, &message(self.tool));
            }
            Shape::Modern | Shape::Keyed => {
                let mirrored = format!(
                    "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {}\r\n",
                    self.tool
                );
                buffer.extend_from_slice(mirrored.as_bytes());
                if self.shape == Shape::Keyed {
                    buffer.extend_from_slice(key().as_bytes());
                }
                append(
                    buffer,
                    &call(
                        self.tool,
                        ",\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\
                         \"io.modelcontextprotocol/clientCapabilities\":{}}",
                    ),
                );
            }
        }
    }
}

fn append(buffer: &mut Vec<u8>, body: &str) {
    let head = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n", body.len());
    buffer.extend_from_slice(head.as_bytes());
    buffer.extend_from_slice(body.as_bytes());
}

/// Returns the header with an idempotency key that no other call has.
fn key() -> String {
    format!("idempotency-key: k-{}\r\n", NEXT_ID.fetch_add(1, Ordering::Relaxed))
}

/// Returns a new id, and an argument that no other call has.
fn argument() -> (u64, String) {
    let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
    (id, format!("{:.<ARGUMENT$}", format!("call {id} ")))
}

fn message(skill: &str) -> String {
    let (id, text) = argument();
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"SendMessage\",\"params\":{{\"message\":{{\"messageId\":\"m-{id}\",\
         \"role\":\"ROLE_USER\",\"parts\":[{{\"data\":{{\"skill\":\"{skill}\",\"arguments\":{{\"message\":\"{text}\"}}}}}}]}}}}}}"
    )
}

fn call(tool: &str, meta: &str) -> String {
    let (id, text) = argument();
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{{\"name\":\"{tool}\",\
         \"arguments\":{{\"message\":\"{text}\"}}{meta}}}}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_has_its_own_token_id_and_argument() {
        let caller = |token: &str| Caller { token: token.into(), session: "s".into() };
        let callers = vec![caller("one"), caller("two")];
        let target = "/demo/mcp".to_owned();
        let traffic = Traffic { shape: Shape::Legacy, target, tool: "echo", authority: "h".into(), callers };
        let mut seen = std::collections::HashSet::new();
        for slot in 0..4 {
            let mut bytes = Vec::new();
            traffic.write(slot, &mut bytes);
            let text = String::from_utf8(bytes).unwrap();
            assert!(text.contains(if slot % 2 == 0 { "Bearer one\r\n" } else { "Bearer two\r\n" }));
            let (_, body) = text.split_once("\r\n\r\n").unwrap();
            assert!((550..700).contains(&body.len()), "{}", body.len());
            let body: serde_json::Value = serde_json::from_str(body).unwrap();
            assert!(seen.insert(body["id"].to_string()));
            assert!(seen.insert(body["params"]["arguments"]["message"].to_string()));
        }
    }

    #[test]
    fn a_key_is_sent_once() {
        let callers = vec![Caller { token: "one".into(), session: String::new() }];
        let target = "/demo/mcp".to_owned();
        let traffic = Traffic { shape: Shape::Keyed, target, tool: "echo", authority: "h".into(), callers };
        let keys = [0, 1].map(|slot| {
            let mut bytes = Vec::new();
            traffic.write(slot, &mut bytes);
            let text = String::from_utf8(bytes).unwrap();
            let mut keys = text.lines().filter(|line| line.starts_with("idempotency-key: "));
            let key = keys.next().unwrap().to_owned();
            assert!(keys.next().is_none() && text.contains("mcp-method: tools/call\r\n"));
            key
        });
        assert_ne!(keys[0], keys[1]);
    }

    #[test]
    fn a_message_names_its_skill_and_has_an_id_of_its_own() {
        let [one, other] = [message("look"), message("look")];
        let [one, other] =
            [&one, &other].map(|text| serde_json::from_str::<serde_json::Value>(text).unwrap());
        let message = &one["params"]["message"];
        assert_eq!(message["parts"][0]["data"]["skill"], "look");
        assert!(message["parts"][0]["data"]["arguments"]["message"].is_string());
        assert_ne!(message["messageId"], other["params"]["message"]["messageId"]);
    }
}
