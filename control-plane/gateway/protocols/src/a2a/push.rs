//! Push notifications: the receivers of a task's states, and what they are sent.
//!
//! Owns: the operations on push configurations. Refuses: to decide when a state is due, which the outbox does
//! (`asp_pipeline::pushes`). Keeps true: only a task's caller sees and changes its receivers, and for anyone else there
//! is no such task (I-10); a receiver of a message is stored before anything of the message is done; credentials are never
//! returned.

mod notification;
mod pace;
pub mod sender;

use std::sync::{Arc, OnceLock};

use asp_a2a::rest::is_id;
use asp_a2a::{A2aError, A2aFailure, Generation, PushAuthentication, PushConfig, PushPage};
use asp_call::call::outcome::Refusal;
use asp_pipeline::pipeline::lookup::FoundCall;
use asp_pipeline::pushes::{FirstReceiver, PushReceiver, PutReceiver, ReceiverBound};
use asp_snapshot::ListedPrimitive;
use futures::future::BoxFuture;
use uuid::Uuid;

use super::found::{entry, find};
use super::refused::RefusedRequest;
use crate::ProtocolRequest;
use crate::push::PushService;
use crate::replica::Replica;

/// Message for an id that no path of the REST binding can have.
const REFUSED_ID: &str = "must have no slash or backslash, and must not be a dot segment";
/// Message for an address that is not allowed.
const REFUSED_URL: &str = "must be an https URL of a public address, without credentials, or of an origin that the platform's operator allows";

/// Id of a configuration that has none in 0.3, where a task had one receiver at first: setting it again replaces it.
const UNNAMED: &str = "default";

/// Creates a configuration, or replaces the one with its id.
pub(super) async fn create(
    request: &ProtocolRequest,
    generation: Generation,
    config: PushConfig,
) -> Result<PushConfig, RefusedRequest> {
    service(request)?;
    let found = find(request, &config.task_id).await?;
    let unknown = || RefusedRequest::from(A2aFailure::task_not_found(&config.task_id));
    let entry = entry(request, &found).ok_or_else(unknown)?;
    let receiver = NewReceiver::of(request, generation, (entry, &config), Uuid::now_v7())?;
    receiver.register(request, (entry, &found)).await?;
    Ok(to_config(found.id(), receiver.receiver))
}

/// Returns a configuration; without an id the task's first one, which is its only one in 0.3.
pub(super) async fn get(
    request: &ProtocolRequest,
    task: &str,
    id: Option<&str>,
) -> Result<PushConfig, RefusedRequest> {
    let mut configs = all(request, task).await?.into_iter();
    let found = configs.find(|config| id.is_none() || config.id.as_deref() == id);
    found.ok_or_else(|| A2aFailure::task_not_found(task).into())
}

/// Returns a page of configurations. A page token is the number of those on the pages before.
pub(super) async fn list(
    request: &ProtocolRequest,
    task: &str,
    page_size: Option<u32>,
    page_token: Option<&str>,
) -> Result<PushPage, RefusedRequest> {
    let mut configs = all(request, task).await?;
    let before: usize = page_token.unwrap_or("0").parse().map_err(|_| {
        RefusedRequest::from(A2aFailure::invalid_field("pageToken", "is not valid for this list"))
    })?;
    configs.drain(..before.min(configs.len()));
    let size = page_size.map_or(usize::MAX, |size| usize::try_from(size).unwrap_or(usize::MAX));
    let mut page = PushPage::default();
    if size > 0 && configs.len() > size {
        configs.truncate(size);
        page.next_page_token = before.saturating_add(size).to_string();
    }
    page.configs = configs;
    Ok(page)
}

/// Deletes a configuration and what its receiver has not received; one that does not exist is deleted already.
pub(super) async fn delete(request: &ProtocolRequest, task: &str, id: &str) -> Result<(), RefusedRequest> {
    let service = service(request)?;
    let found = find(request, task).await?;
    let removed = service.pushes.remove(found.id(), id).await;
    removed.map(drop).map_err(|fault| RefusedRequest::of_store(fault.into()))
}

/// Receiver that a request names for a task. Its address has been checked but for the addresses of its name.
pub(super) struct NewReceiver {
    gateway: Arc<Replica>,
    org: String,
    receiver: PushReceiver,
    origin: OnceLock<String>,
    /// Reason why it was refused.
    failure: OnceLock<A2aFailure>,
}

impl NewReceiver {
    /// Returns the receiver in a configuration for tasks of a primitive; `other` becomes its id if it has none in 1.0.
    pub(super) fn of(
        request: &ProtocolRequest,
        generation: Generation,
        (entry, config): (&ListedPrimitive, &PushConfig),
        other: Uuid,
    ) -> Result<NewReceiver, RefusedRequest> {
        if config.id.as_deref().is_some_and(|id| !is_id(id)) {
            return Err(A2aFailure::invalid_field("id", REFUSED_ID).into());
        }
        let authentication = config.authentication.clone().unwrap_or_default();
        let receiver = PushReceiver {
            id: config.id.clone().unwrap_or_else(|| match generation {
                Generation::V03 => UNNAMED.to_owned(),
                Generation::V10 => other.to_string(),
            }),
            url: config.url.clone(),
            token: config.token.clone(),
            schemes: authentication.schemes,
            credentials: authentication.credentials,
            version: generation.as_str().to_owned(),
            server: request.server.message.name.clone(),
            primitive: entry.primitive.id.clone(),
        };
        service(request)?.destination(&receiver).map_err(|_| refused_url())?;
        let gateway = request.gateway.clone();
        let org = request.caller.org.clone();
        Ok(NewReceiver { gateway, org, receiver, origin: OnceLock::new(), failure: OnceLock::new() })
    }

    /// Stores it for a task that has started, or replaces the one with its id.
    pub(super) async fn register(
        &self,
        request: &ProtocolRequest,
        (entry, found): (&ListedPrimitive, &FoundCall),
    ) -> Result<(), RefusedRequest> {
        let refused = |refusal: Refusal| self.refused().unwrap_or_else(|| RefusedRequest::of(&refusal));
        let ProtocolRequest { snapshot, server, caller, .. } = request;
        let pipeline = &request.gateway.pipeline;
        pipeline.charge_receiver(snapshot, server, caller, entry).await.map_err(refused)?;
        self.check().await.map_err(refused)?;
        if let Some(call) = found.call() {
            pipeline.store_brief(call).await.map_err(RefusedRequest::of_store)?;
        }
        self.store(found.id()).await.map_err(refused)
    }

    /// Returns the reason why it was refused.
    pub(super) fn refused(&self) -> Option<RefusedRequest> {
        self.failure.get().cloned().map(RefusedRequest::from)
    }

    /// Notes the reason for the client; returns the one for the call.
    fn refuse(&self, failure: A2aFailure) -> Refusal {
        let message = "the push configuration was refused".to_owned();
        let _ = self.failure.set(failure);
        Refusal::InvalidArguments { pointer: String::new(), message }
    }
}

impl FirstReceiver for NewReceiver {
    fn check(&self) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async {
            let Some(service) = &self.gateway.push else { return Err(unstored()) };
            let checked = service.check(&self.receiver, &self.org).await;
            let origin = checked.map_err(|_| self.refuse(refused_url()))?;
            let _ = self.origin.set(origin);
            Ok(())
        })
    }

    fn store(&self, call: Uuid) -> BoxFuture<'_, Result<(), Refusal>> {
        Box::pin(async move {
            let Some((service, origin)) = self.gateway.push.as_ref().zip(self.origin.get()) else {
                return Err(unstored());
            };
            match service.pushes.put(call, &self.org, origin.clone(), &self.receiver).await {
                Ok(PutReceiver::Stored) => Ok(()),
                Ok(PutReceiver::NoCall) => Err(self.refuse(A2aFailure::task_not_found(&call.to_string()))),
                Ok(PutReceiver::Full(bound)) => Err(self.refuse(exceeded(bound))),
                Err(_) => Err(unstored()),
            }
        })
    }
}

fn unstored() -> Refusal {
    Refusal::Upstream("the store of calls does not answer: send this again".into())
}

fn refused_url() -> A2aFailure {
    A2aFailure::invalid_field("url", REFUSED_URL)
}

/// Returns the configurations of a task of the caller, oldest first.
async fn all(request: &ProtocolRequest, task: &str) -> Result<Vec<PushConfig>, RefusedRequest> {
    let service = service(request)?;
    let id = find(request, task).await?.id();
    let receivers = service.pushes.of_call(id).await;
    let receivers = receivers.map_err(|fault| RefusedRequest::of_store(fault.into()))?;
    Ok(receivers.into_iter().map(|receiver| to_config(id, receiver)).collect())
}

/// Returns the refusal of a configuration beyond a bound.
fn exceeded(bound: ReceiverBound) -> A2aFailure {
    let (limit, whose) = match bound {
        ReceiverBound::OfCall => ("receivers of the task", "the task has"),
        ReceiverBound::OfUser => ("receivers of the user", "your tasks have"),
        ReceiverBound::OfOrg => ("receivers of the org", "the tasks of your org have"),
    };
    let description = format!("{whose} as many push configurations as allowed: delete one");
    A2aFailure::invalid_field("pushNotificationConfig", description).with("limit", limit)
}

/// Returns a receiver as its caller sees it.
fn to_config(task: Uuid, receiver: PushReceiver) -> PushConfig {
    let PushReceiver { id, url, token, schemes, .. } = receiver;
    let authentication = (!schemes.is_empty()).then_some(PushAuthentication { schemes, credentials: None });
    PushConfig { id: Some(id), task_id: task.to_string(), url, token, authentication }
}

fn service(request: &ProtocolRequest) -> Result<&PushService, RefusedRequest> {
    request.gateway.push.as_ref().ok_or_else(|| A2aError::PushNotificationNotSupported.into())
}
