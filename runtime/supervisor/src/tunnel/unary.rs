//! Reads and lists of resources, and prompts: separate calls, outside the worker's session stream.
//!
//! Keeps true: the last message of a worker is sent as the call's last frame, so that an answer of one message takes
//! one frame.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use asp_proto::plugin::client_message::Payload;
use asp_proto::plugin::prompt_plugin_client::PromptPluginClient;
use asp_proto::plugin::resource_plugin_client::ResourcePluginClient;
use asp_proto::plugin::{ClientMessage, ServerMessage};
use prost_types::Timestamp;
use tokio::time::{Instant, sleep, sleep_until};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::credential;
use super::subject::LogSubject;
use super::{AttachedTunnel, CallEnd, FromGateway, Result, Tunnel, TunnelError};
use crate::ppp::outbox::Outbox;
use crate::ppp::{MAX_MESSAGE, failed, time_until};
use crate::worker::Worker;
use crate::worker::call::Call;
use crate::worker::process::EXIT_WITHIN;
use crate::worker::session::BeginError;

/// Wait for the worker's end after it reported a failure, because the end may say more.
const DEATH_WITHIN: Duration = Duration::from_millis(100);
/// Wait for the worker's end after its stream broke: the process has [`EXIT_WITHIN`] to exit.
const BROKEN_WITHIN: Duration = EXIT_WITHIN.saturating_add(DEATH_WITHIN);
/// Maximum length of the worker's own text in a failure, in bytes.
const MAX_TEXT: usize = 4096;

impl Tunnel {
    /// Runs a read, a prompt or a list.
    pub(super) async fn ask(
        &mut self,
        worker: &Arc<Worker>,
        request: FromGateway,
        attached: &AttachedTunnel,
    ) -> Result<CallEnd> {
        let channel = channel(worker)?;
        self.work = Some(request.clone());
        let no_trace = BTreeMap::new();
        let (named, deadline, context, attrs) = match &request {
            FromGateway::Read(read) => {
                ((&*read.request_id, &*read.primitive), &read.deadline, &read.ctx, &read.attrs)
            }
            FromGateway::Prompt(prompt) => {
                ((&*prompt.request_id, &*prompt.name), &prompt.deadline, &prompt.ctx, &prompt.attrs)
            }
            FromGateway::List(list) => ((&*list.request_id, &*list.primitive), &None, &list.ctx, &no_trace),
            _ => return Err(Status::failed_precondition("the call has not begun").into()),
        };
        let call = begin(worker, named, deadline.as_ref(), self.outbox.clone(), attached)?;
        let subject = LogSubject::of(worker, attached, named.0, context.as_ref(), attrs);
        let work = forward(channel, worker.request(()), request, Arc::clone(&call));
        let began = Instant::now();
        let end = self.run_cancellable(worker, &call, attached, work).await;
        end.inspect(|end| subject.log_end(*end, began.elapsed()))
    }

    /// Runs `work` to its end. Dropping it resets its stream, which the worker treats as a cancel.
    pub(super) async fn run_cancellable(
        &mut self,
        worker: &Arc<Worker>,
        call: &Arc<Call>,
        attached: &AttachedTunnel,
        work: impl Future<Output = Result<(), Status>>,
    ) -> Result<CallEnd> {
        let mut half_closed = false;
        let mut work = std::pin::pin!(work);
        let failed = loop {
            let (limit, reason) = call.limit();
            tokio::select! {
                biased;
                end = call.wait_for_end() => return Ok(end),
                done = &mut work => break done.err(),
                message = credential::next(&mut self.inbound, attached.lease.as_deref()), if !half_closed => match message {
                    Ok(None) => half_closed = true,
                    Ok(Some(message)) if is_cancel(&message) => break Some(Status::cancelled("cancelled")),
                    // Nothing else is for a call outside the session stream.
                    Ok(Some(_)) => {}
                    Err(_) => break Some(Status::cancelled("the caller is gone")),
                },
                () = sleep_until(limit) => if call.limit().0 <= Instant::now() {
                    break Some(Status::deadline_exceeded(reason));
                },
                () = self.outbox.reader_gone() => break Some(Status::cancelled("the caller is gone")),
                () = attached.cancel.cancelled() => break Some(Status::cancelled("the tunnel is closed")),
            }
        };
        let Some(status) = failed else {
            worker.session.remove(&call.request_id);
            call.finish();
            return Ok(CallEnd::Answered);
        };
        if matches!(status.code(), Code::Unavailable | Code::Unknown | Code::Internal) {
            // A broken stream may be the first sign of the worker's end, which says more. A failure that the worker
            // reported is a status without a source; a failure of its connection has a source.
            let within = if status.source().is_some() { BROKEN_WITHIN } else { DEATH_WITHIN };
            tokio::select! {
                biased;
                end = call.wait_for_end() => return Ok(end),
                () = sleep(within) => {}
                () = sleep_until(call.limit().0) => {}
                () = self.outbox.reader_gone() => {}
                () = attached.cancel.cancelled() => {}
            }
        }
        // A call that the worker answered itself has ended. The end of a subscription is ignored, so that other calls
        // of the worker continue: once the worker has no calls, the quiescence check decides.
        let answered = matches!(status.code(), Code::NotFound | Code::InvalidArgument | Code::Unimplemented);
        if !answered && !attached.ticket.is_subscription() {
            worker.stopped.store(true, Ordering::Relaxed);
        }
        worker.session.remove(&call.request_id);
        let text = worker.session.redact(status.message());
        call.conclude(&failure(&call.request_id, status.code(), &text));
        Ok(CallEnd::Answered)
    }
}

/// Sends a request to the worker with these credentials, and its answer to the call.
async fn forward(
    channel: Channel,
    credentials: Request<()>,
    request: FromGateway,
    call: Arc<Call>,
) -> Result<(), Status> {
    match request {
        FromGateway::Read(request) => {
            let mut client = ResourcePluginClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
            let mut chunks = client.read(credentials.map(|()| request)).await?.into_inner();
            let mut latest = None;
            while let Some(chunk) = chunks.message().await? {
                // Another chunk follows, so the previous one was not the last.
                if let Some(before) = latest.replace(chunk) {
                    call.forward(&before).await;
                }
            }
            latest.iter().for_each(|last| call.conclude(last));
        }
        FromGateway::Prompt(request) => {
            let mut client = PromptPluginClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
            call.conclude(&client.get(credentials.map(|()| request)).await?.into_inner());
        }
        FromGateway::List(request) if !request.mcp => {
            let mut client = ResourcePluginClient::new(channel).max_decoding_message_size(MAX_MESSAGE);
            call.conclude(&client.list(credentials.map(|()| request)).await?.into_inner());
        }
        _ => return Err(Status::unimplemented("its resources are listed in specs only")),
    }
    Ok(())
}

/// Registers the call, by its id and its primitive, so that it is notified of its worker's end.
pub(super) fn begin(
    worker: &Worker,
    named: (&str, &str),
    deadline: Option<&Timestamp>,
    outbox: Outbox,
    attached: &AttachedTunnel,
) -> Result<Arc<Call>> {
    if named.0.is_empty() {
        return Err(Status::invalid_argument("the request has no request_id").into());
    }
    let deadline = deadline.map(|end| Instant::now() + time_until(end)).or(attached.soft_deadline);
    match worker.session.begin(named, outbox, deadline) {
        Ok(call) => {
            call.record_delivery();
            Ok(call)
        }
        Err(BeginError::Duplicate) => {
            Err(Status::already_exists("the worker has a call of this request_id").into())
        }
        Err(BeginError::Dead(cause)) => Err(TunnelError::Undelivered(cause)),
    }
}

/// Returns the channel that serves a worker's resources and prompts.
pub(super) fn channel(worker: &Worker) -> Result<Channel> {
    let channel = worker.channel.clone();
    Ok(channel.ok_or_else(|| Status::failed_precondition("a stdio server is asked by lines only"))?)
}

fn is_cancel(message: &FromGateway) -> bool {
    matches!(message, FromGateway::Message(ClientMessage { payload: Some(Payload::Cancel(_)) }))
}

fn failure(request_id: &str, code: Code, text: &str) -> ServerMessage {
    let code = match code {
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::NotFound => "NOT_FOUND",
        Code::Cancelled => "CANCELLED",
        Code::DeadlineExceeded => "DEADLINE",
        Code::Unimplemented => "UNSUPPORTED",
        _ => "INTERNAL",
    };
    let text = text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default();
    ServerMessage { payload: Some(failed(request_id, code, text)) }
}

#[cfg(test)]
mod tests {
    use asp_proto::plugin::server_message;

    use super::*;

    #[test]
    fn a_hook_that_a_plugin_lacks_is_no_accident() {
        for (status, word) in [
            (Status::unimplemented("it has no `complete` hook"), "UNSUPPORTED"),
            (Status::not_found("no such page"), "NOT_FOUND"),
            (Status::internal("it threw"), "INTERNAL"),
        ] {
            match failure("r", status.code(), status.message()).payload {
                Some(server_message::Payload::Failed(failed)) => {
                    assert_eq!((failed.code.as_str(), failed.message.as_str()), (word, status.message()));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}
