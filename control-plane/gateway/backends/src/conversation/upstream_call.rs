//! A call as a request to an MCP server, over whichever transport, and the faults of the server as refusals of the call.

use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::content::bounded;
use asp_call::call::outcome::Refusal;
use asp_call::call::page::{self, Visit};
use asp_call::execution::Execution;
use asp_mcp_client::client::{self, ClientFault, ClientParams, RequiredPage};
use asp_proto::snapshot::Kind;
use reqwest::StatusCode;
use serde_json::{Map, Value};

use crate::outbound::refused::{Meaning, by_status};
use crate::outbound::upstream::unanswered;

/// Returns the method of a call, and the parameters that name the server's own primitive.
pub(crate) fn request(primitive: &str, execution: &Execution) -> (&'static str, Map<String, Value>) {
    let mut params = Map::new();
    match execution.call.entry.primitive.kind() {
        Kind::Resource | Kind::ResourceTemplate => {
            let uri = execution.arguments.get("uri").cloned();
            params.insert("uri".into(), uri.unwrap_or_else(|| primitive.into()));
            ("resources/read", params)
        }
        kind => {
            params.insert("name".into(), primitive.into());
            (if kind == Kind::Prompt { "prompts/get" } else { "tools/call" }, params)
        }
    }
}

/// Returns the parameters of a call that its client sent; a completion has none.
pub(crate) fn client_params(execution: &Execution) -> ClientParams {
    let call = &execution.call;
    if call.kind.completed_argument().is_some() {
        return ClientParams::default();
    }
    let has_arguments = !matches!(call.entry.primitive.kind(), Kind::Resource | Kind::ResourceTemplate);
    ClientParams { arguments: has_arguments.then(|| execution.arguments.clone()), meta: call.meta.clone() }
}

/// Returns the refusal of a call that got no result. `pages`: those that its spec names.
pub(crate) fn refusal(call: &Call, pages: &[String], fault: ClientFault) -> Refusal {
    match fault {
        ClientFault::Error { visits, .. } if !visits.is_empty() => pages_first(call, pages, visits),
        ClientFault::Error { code, message, data, .. } => {
            Refusal::Relayed { code, message, data: bounded(data) }
        }
        ClientFault::NotDelivered | ClientFault::SessionEnded | ClientFault::Busy => {
            Refusal::Upstream(fault.to_string())
        }
        ClientFault::SessionRefused { fault, .. } => refusal(call, pages, *fault),
        ClientFault::Refused { status, wait, said, .. } => by_status_alone(status, wait, &said).of(call),
        ClientFault::Lost(why) => unanswered(call, &why),
        ClientFault::Cancelled => Refusal::Cancelled,
    }
}

/// Returns the refusal of a call whose user has to visit these pages first. An upstream cannot send the user to pages
/// that the spec does not name.
fn pages_first(call: &Call, declared: &[String], required: Vec<RequiredPage>) -> Refusal {
    let visit = |RequiredPage { id, message, url }: RequiredPage| {
        let url = declared.iter().find_map(|page| page::address(page, &url))?;
        Some(Visit { id, message, url })
    };
    let Some(pages) = required.into_iter().map(visit).collect::<Option<Vec<Visit>>>() else {
        let why = "the service requires its user to visit a page that the spec of this tool does not declare";
        return Refusal::Declined(why.into());
    };
    if call.abilities().pages {
        return Refusal::PagesFirst { pages };
    }
    let described = page::described(&pages);
    Refusal::Declined(format!(
        "the service requires its user to visit a page, and this client cannot open pages: {described}"
    ))
}

/// Interprets a status. It says nothing about the arguments here: an MCP server reports those in JSON-RPC.
pub(crate) fn by_status_alone(status: StatusCode, wait: Option<Duration>, said: &str) -> Meaning {
    match by_status(status, wait, String::new()) {
        Meaning::Refused(Refusal::InvalidArguments { .. }) => {
            Meaning::Refused(Refusal::Declined(client::answered(status, said)))
        }
        meaning => meaning,
    }
}
