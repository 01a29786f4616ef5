//! Clients that resume a stream with `Last-Event-ID` (2025-11-25 transports, resumability and redelivery; the same
//! since 2025-03-26).
//!
//! Keeps true: the client gets what came after the event it names, nothing twice, and only from the stream of that
//! event; lost events are reported; an id that is foreign, altered, or of a call no longer kept is refused like one
//! that never existed.

use std::sync::Arc;

use asp_call::call::authority::{Arrival, Attachment};
use asp_edge::{Caller, Reason};
use asp_json::Json;
use asp_pipeline::event_id::{self, CallPosition, IdHolder, Position};
use asp_pipeline::pipeline::lookup::AttachResult;
use asp_pipeline::sessions::LegacySession;
use axum::response::Response;
use http::{HeaderValue, StatusCode};
use uuid::Uuid;

use super::all_servers;
use super::codec::{self, RpcFailure};
use super::lacking::has_scopes;
use super::legacy_era::{LegacyEra, abilities};
use super::results::RequestKind;
use super::stream::{self, StreamView};
use super::subscriptions;
use crate::ProtocolRequest;

/// Resumes the stream after the last event that the client received.
pub(super) async fn reconnect(
    request: &ProtocolRequest,
    session: &Arc<LegacySession>,
    last: &HeaderValue,
) -> Result<Response, RpcFailure> {
    let id = last.to_str().map_err(|_| unknown())?.trim();
    let open = |(caller, server): (&Arc<Caller>, &str)| {
        event_id::open(&request.gateway.sealer, &IdHolder::of(caller, server, session.sid()), id)
    };
    let mut holders = all_servers::holders(request);
    let found = holders.find_map(|holder| Some((open(holder)?, holder)));
    let (position, holder) = found.ok_or_else(unknown)?;
    match position {
        Position::Call(position) => call(request, session, (position, holder)).await,
        Position::Changes(position) => {
            let listening = subscriptions::open(request, session, Some(position))?;
            Ok(subscriptions::of_session(request, session, listening))
        }
    }
}

async fn call(
    request: &ProtocolRequest,
    session: &Arc<LegacySession>,
    (position, (caller, server)): (CallPosition, (&Arc<Caller>, &str)),
) -> Result<Response, RpcFailure> {
    let Some(next_event) = position.next_event else {
        // The client already has its answer.
        return Ok(codec::status(StatusCode::NO_CONTENT));
    };
    let gateway = &request.gateway;
    let id = Uuid::from_bytes(position.call);
    let attached = gateway.pipeline.attach(id, caller, server).await;
    let later = |why: &str| RpcFailure::with(Reason::UpstreamUnavailable, why);
    let call = match attached.map_err(|_| later("the store of calls does not answer: reconnect"))? {
        AttachResult::Here(call) => call,
        AttachResult::Elsewhere => {
            return Err(later("the call runs at another gateway, which has its stream: reconnect"));
        }
        AttachResult::Unknown => return Err(unknown()),
    };
    has_scopes(request, &call)?;
    let arrival = Arrival::at(call.clone());
    gateway.pipeline.attend(&arrival, caller).await;
    let is_same_log = call.events.counts(position.log);
    let token = position.progress_token.as_deref().map(Json::part);
    let view = StreamView {
        asked: RequestKind::of(&call),
        revision: session.profile.revision,
        id: call.protocol_request_id.clone(),
        progress_token: token,
        log_level: Some(session.log_level()),
        accepts_stream: true,
        // A call that moved to another gateway numbers its events from the start; the client gets all of them.
        from_event: if is_same_log { next_event } else { 0 },
        attachment: Attachment::to(call, abilities(request, session)),
        era: Box::new(LegacyEra::of(request, session)),
    };
    Ok(stream::resume(view, position.progress))
}

fn unknown() -> RpcFailure {
    RpcFailure::with(
        Reason::InvalidRequest,
        "Last-Event-ID names no event of this session whose stream is still kept: send the request again if it may be \
         repeated, or listen without the header",
    )
}
