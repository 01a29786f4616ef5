//! `asp call`: calls a tool over MCP, or a skill over A2A, and prints its result.
//!
//! Keeps true: standard output has the result alone; a question is answered only by a person at the terminal; a signal
//! cancels the call at the server.

mod a2a;
pub(super) mod mcp;
pub(super) mod question;
mod result;

use std::time::Duration;

use anyhow::Context;
use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_json::Json;
use asp_platform::shell;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::mcp::{ENV_TOKEN, endpoint};
use crate::args::call::CallArgs;
use crate::bridge::ServerEndpoint;
use crate::serve::stop;
use result::{CallResult, Piece};

/// Words of a refusal of an argument that should be a text.
const NO_TEXT: &str = "is not of type \"string\"";

/// Time that the server has to acknowledge a cancel.
const CANCEL: Duration = Duration::from_secs(5);
/// Time that hanging tasks have at the end, such as one that reads the terminal.
const REST: Duration = Duration::from_millis(100);

/// A tool or skill to call, and the way to it.
pub(super) struct CallTarget {
    http: reqwest::Client,
    url: Url,
    /// Those that authenticate the caller.
    headers: HeaderMap,
    name: String,
}

/// Input of a call.
enum CallInput {
    /// A JSON object.
    Arguments(Json),
    Text(String),
}

/// Calls and prints the result.
pub fn run(args: &CallArgs) -> Result<(), Failure> {
    let path = if args.a2a { "a2a" } else { "mcp" };
    let endpoint = endpoint(args.url.as_deref(), &args.server, path, &ProcessEnvironment)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let called = runtime.block_on(async {
        let target = CallTarget::new(endpoint, &args.name).await?;
        call(&target, input(args), args.a2a).await
    });
    runtime.shutdown_timeout(REST);
    let result = called?;
    let hint = text_hint(&result, &args.named);
    let printed = result.print(args.json);
    if let Some(hint) = hint {
        print::note(&hint);
    }
    printed
}

/// Returns how to send the first `--arg` that was sent as JSON as a text, if the tool wanted a text.
fn text_hint(result: &CallResult, named: &[(String, Value)]) -> Option<String> {
    let wants_text = |piece: &Piece| matches!(piece, Piece::Text(text) if text.contains(NO_TEXT));
    if !result.is_error || !result.pieces.iter().any(wants_text) {
        return None;
    }
    let (name, value) = named.iter().find(|(_, value)| !value.is_string())?;
    let text = shell::word(&format!("{name}=\"{value}\""));
    Some(format!(
        "a value that is JSON, such as a number, is sent as that; quotes make a text of it: --arg {text}"
    ))
}

async fn call(target: &CallTarget, input: CallInput, over_a2a: bool) -> Result<CallResult, Failure> {
    let stopped = CancellationToken::new();
    let work = async {
        match (over_a2a, input) {
            (false, CallInput::Arguments(arguments)) => mcp::call(target, arguments, &stopped).await,
            (_, input) => a2a::call(target, input, &stopped).await,
        }
    };
    let signal = async {
        match stop::wait_for_signal().await {
            Ok(number) => number,
            // Err: signals cannot be received; the call ends by itself.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::pin!(work);
    tokio::select! {
        done = &mut work => Ok(done?),
        number = signal => {
            stopped.cancel();
            // Err: the server did not answer in time. The call has a deadline there.
            let _ = tokio::time::timeout(CANCEL, work).await;
            Err(Failure::Signalled(number))
        }
    }
}

fn input(args: &CallArgs) -> CallInput {
    if let Some(text) = &args.message {
        return CallInput::Text(text.clone());
    }
    let named = || Value::Object(args.named.iter().cloned().collect::<Map<String, Value>>());
    CallInput::Arguments(args.arguments.clone().unwrap_or_else(named).into())
}

impl CallTarget {
    pub(super) async fn new(endpoint: ServerEndpoint, name: &str) -> Result<CallTarget, Failure> {
        let http = endpoint.http_client()?.build().context("create the HTTP client")?;
        let mut headers = HeaderMap::new();
        let token = endpoint.credential.token().await.map_err(anyhow::Error::from)?;
        if let Some(token) = token {
            let bearer = HeaderValue::from_str(&format!("Bearer {}", token.expose()));
            let mut bearer = bearer.map_err(|_| Failure::bad(ENV_TOKEN, "is not a token"))?;
            bearer.set_sensitive(true);
            headers.insert(AUTHORIZATION, bearer);
        }
        Ok(CallTarget { http, url: endpoint.url, headers, name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_number_where_a_text_belongs_is_shown_as_one() {
        let result = |text: &str, is_error| CallResult {
            whole: json!({}).into(),
            pieces: vec![Piece::Text(text.to_owned())],
            is_error,
        };
        let refused = result("argument /zip: value is not of type \"string\"", true);
        let named = [("town".to_owned(), json!("Bonn")), ("zip".to_owned(), json!(53111))];
        assert!(text_hint(&refused, &named).unwrap().ends_with("--arg 'zip=\"53111\"'"));
        assert_eq!(text_hint(&refused, &named[..1]), None);
        assert_eq!(text_hint(&result("argument /zip: value is too small", true), &named), None);
        assert_eq!(text_hint(&result("value is not of type \"string\"", false), &named), None);
    }
}
