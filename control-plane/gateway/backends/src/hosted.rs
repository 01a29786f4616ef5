//! Calls that a service hosts over HTTP/JSON (docs/http-calls.md; model: SEP-1597): created by id, polled, answered
//! and cancelled.
//!
//! Owns: the life of one such call, and the cancel requests to services whose calls were given up. Refuses: questions
//! that the spec does not declare. Keeps true: a call is created again only under the same id and key, so that the
//! service runs it once; a call that this gateway gives up is cancelled at the service.

use std::sync::Arc;

use asp_call::call::outcome::{Output, Refusal};
use asp_call::execution::Execution;
use asp_outbound::Outbound;
use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{Kind, Primitive};
use async_trait::async_trait;
use tokio_util::task::TaskTracker;

use super::delegate::Delegates;
use crate::backend::{Backend, misplaced, mode};
use crate::hosted::run::HostedCall;
use crate::outbound::auth::Authorizer;
use crate::outbound::breaker::Breakers;

mod asking;
mod cancel;
mod delegating;
mod outcome;
mod polling;
mod reads;
pub mod resource;
mod run;
mod service;

use service::Service;

/// The backend of services that host calls.
pub(crate) struct HostedBackend {
    outbound: Arc<Outbound>,
    breakers: Arc<Breakers>,
    delegates: Arc<Delegates>,
    authorizer: Arc<Authorizer>,
    cancel_notices: TaskTracker,
}

impl HostedBackend {
    pub(crate) fn new(
        outbound: Arc<Outbound>,
        breakers: Arc<Breakers>,
        delegates: Arc<Delegates>,
        authorizer: Arc<Authorizer>,
    ) -> HostedBackend {
        HostedBackend { outbound, breakers, delegates, authorizer, cancel_notices: TaskTracker::new() }
    }
}

#[async_trait]
impl Backend for HostedBackend {
    async fn run(&self, execution: &Execution) -> Result<Output, Refusal> {
        let call = &execution.call;
        let Some(Mode::ProxyCalls(target)) = mode(&call.entry.primitive) else {
            return Err(misplaced(execution));
        };
        let mut started = execution.started();
        started.mark_sent();
        let service = Service::new(self, target, execution)?;
        let running = async {
            match call.entry.primitive.kind() {
                Kind::Resource | Kind::ResourceTemplate => reads::resource(&service, execution).await,
                Kind::Prompt => reads::prompt(&service, execution).await,
                _ => HostedCall::new(&service, execution, self, started).run().await,
            }
        };
        // Only calls that can continue elsewhere are preempted: such a call stays at the service. Noted before the
        // call is
        // dropped, which would otherwise cancel it there.
        let yielded = async {
            call.ownership.preempted().await;
            call.ownership.passed_on.set();
        };
        tokio::select! {
            ended = running => ended,
            () = call.cancelled() => Err(Refusal::Cancelled),
            () = yielded => Err(Refusal::Cancelled),
        }
    }

    /// Whether another gateway can continue: always, because the service has the call under the same id at every
    /// gateway.
    fn continues(&self, _primitive: &Primitive) -> bool {
        true
    }

    /// Returns once all cancel requests are sent.
    async fn drained(&self) {
        self.cancel_notices.close();
        self.cancel_notices.wait().await;
        self.cancel_notices.reopen();
    }
}
