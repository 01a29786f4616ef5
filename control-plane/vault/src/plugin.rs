//! A Kubernetes KMS plugin (API v2) over its Unix socket.
//!
//! Owns: the requests `Status`, `Encrypt` and `Decrypt`. Keeps true: each request has a timeout; the id of the current key is
//! asked for at intervals, and never for each record. A plugin binds nothing to a ciphertext: the record authenticates
//! its wrapped key together with its place.

use std::path::Path;
use std::time::Duration;

use asp_platform::secret::random_hex;
use asp_proto::kms::key_management_service_client::KeyManagementServiceClient;
use asp_proto::kms::{DecryptRequest, EncryptRequest, EncryptResponse, StatusRequest, StatusResponse};
use async_trait::async_trait;
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};
use zeroize::Zeroizing;

use crate::error::VaultError;
use crate::key_service::{DataKey, KeyService, WrappedKey};
use crate::place::Place;
use crate::record::MAX_WRAPPED;

/// Name of this service in records.
const NAME: &str = "plugin";
/// Timeout of one request; Kubernetes gives a plugin three seconds by default.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Interval at which the plugin is asked for its current key; Kubernetes asks each minute.
const STATUS_EVERY: Duration = Duration::from_secs(30);
/// Maximum length of a response in bytes.
const MAX_ANSWER: usize = 64 * 1024;
/// Maximum length of a ciphertext and of a key id in bytes (KMS plugin API v2).
const MAX_FIELD: usize = 1_024;
/// Maximum number of concurrent requests of this process.
const CONCURRENT: usize = 64;
/// Length of the id of a request in bytes, before hex.
const UID_BYTES: usize = 16;

type PluginClient = KeyManagementServiceClient<Channel>;

/// Key service of a KMS plugin.
pub struct KmsPlugin {
    client: PluginClient,
    permits: Semaphore,
    current: Mutex<Option<CurrentKey>>,
}

#[derive(Clone)]
struct CurrentKey {
    id: String,
    /// Last attempt to ask for it, successful or not.
    asked_at: Instant,
}

impl KmsPlugin {
    /// Creates the service with the socket of a plugin, without connecting. Needs a running tokio runtime.
    pub fn open(socket: &Path) -> Result<KmsPlugin, VaultError> {
        let address = format!("unix:{}", socket.display());
        let endpoint = Endpoint::from_shared(address).map_err(|error| VaultError::Unavailable {
            service: NAME,
            cause: format!("{} is not a socket: {error}", socket.display()),
        })?;
        let client = PluginClient::new(endpoint.connect_timeout(ANSWER_WITHIN).connect_lazy())
            .max_decoding_message_size(MAX_ANSWER)
            .max_encoding_message_size(MAX_ANSWER);
        Ok(KmsPlugin { client, permits: Semaphore::new(CONCURRENT), current: Mutex::default() })
    }

    /// Makes a request within its timeout, as one of a bounded number.
    async fn ask<T>(&self, request: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
        let answer = async {
            let permit = self.permits.acquire().await;
            // Err: the semaphore is never closed.
            let _permit = permit.map_err(|error| Status::internal(error.to_string()))?;
            request.await.map(Response::into_inner)
        };
        let silent = |_| Status::deadline_exceeded(format!("no answer within {} s", ANSWER_WITHIN.as_secs()));
        timeout(ANSWER_WITHIN, answer).await.map_err(silent)?
    }

    fn set_current(&self, id: &str) {
        *self.current.lock() = Some(CurrentKey { id: id.to_owned(), asked_at: Instant::now() });
    }
}

#[async_trait]
impl KeyService for KmsPlugin {
    fn name(&self) -> &'static str {
        NAME
    }

    fn is_remote(&self) -> bool {
        true
    }

    async fn current_key(&self) -> Result<String, VaultError> {
        let known = self.current.lock().clone();
        if let Some(known) = known.as_ref().filter(|known| known.asked_at.elapsed() < STATUS_EVERY) {
            return Ok(known.id.clone());
        }
        // While it is being asked, and if it does not answer, the last id is good enough for everyone else.
        if let Some(known) = &known {
            self.set_current(&known.id);
        }
        let mut client = self.client.clone();
        let answer = self.ask(client.status(StatusRequest {})).await;
        match (answer.map_err(|status| error(&status, "")).and_then(checked), known) {
            (Ok(id), _) => {
                self.set_current(&id);
                Ok(id)
            }
            (Err(error), Some(known)) => {
                tracing::debug!(%error, "KMS plugin did not name its current key; the last one counts");
                Ok(known.id)
            }
            (Err(error), None) => Err(error),
        }
    }

    async fn wrap(&self, data_key: &DataKey, _place: &Place<'_>) -> Result<WrappedKey, VaultError> {
        let mut client = self.client.clone();
        let request =
            EncryptRequest { plaintext: data_key.expose().to_vec(), uid: random_hex::<UID_BYTES>() };
        let answer = self.ask(client.encrypt(request)).await;
        let mut answer = answer.map_err(|status| error(&status, ""))?;
        let key_id = std::mem::take(&mut answer.key_id);
        check_length("key id", key_id.len())?;
        check_length("ciphertext", answer.ciphertext.len())?;
        if answer.encoded_len() > MAX_WRAPPED {
            return Err(unexpected("answered with annotations of more than 32 KiB"));
        }
        self.set_current(&key_id);
        Ok(WrappedKey { key_id, bytes: answer.encode_to_vec() })
    }

    async fn unwrap(&self, wrapped: &WrappedKey, _place: &Place<'_>) -> Result<DataKey, VaultError> {
        let stored = EncryptResponse::decode(wrapped.bytes.as_slice()).map_err(|_| VaultError::NotOpened)?;
        let request = DecryptRequest {
            ciphertext: stored.ciphertext,
            uid: random_hex::<UID_BYTES>(),
            key_id: wrapped.key_id.clone(),
            annotations: stored.annotations,
        };
        let mut client = self.client.clone();
        let answer = self.ask(client.decrypt(request)).await;
        let plaintext = answer.map_err(|status| error(&status, &wrapped.key_id))?.plaintext;
        DataKey::from_slice(&Zeroizing::new(plaintext)).ok_or(VaultError::NotOpened)
    }
}

/// Returns the current key of a healthy plugin.
fn checked(status: StatusResponse) -> Result<String, VaultError> {
    let StatusResponse { version, healthz, key_id } = status;
    // `v2beta1` has the same messages.
    if !matches!(version.as_str(), "v2" | "v2beta1") {
        return Err(unexpected("speaks another version than v2 of the KMS plugin API"));
    }
    if healthz != "ok" {
        return Err(VaultError::Unavailable {
            service: NAME,
            cause: "it reports that it is not healthy".into(),
        });
    }
    check_length("key id", key_id.len())?;
    Ok(key_id)
}

fn check_length(field: &str, length: usize) -> Result<(), VaultError> {
    match (1..=MAX_FIELD).contains(&length) {
        true => Ok(()),
        false => Err(unexpected(&format!("answered with a {field} of {length} bytes"))),
    }
}

/// Converts the status of a request. The plugin's own text stays out of errors: it may repeat what it was given.
fn error(status: &Status, key_id: &str) -> VaultError {
    match status.code() {
        Code::NotFound if !key_id.is_empty() => VaultError::UnknownKey { key_id: format!("{NAME}:{key_id}") },
        Code::InvalidArgument => VaultError::NotOpened,
        Code::PermissionDenied | Code::Unauthenticated | Code::FailedPrecondition | Code::Unimplemented => {
            unexpected(status.code().description())
        }
        code => VaultError::Unavailable { service: NAME, cause: code.description().to_owned() },
    }
}

fn unexpected(cause: &str) -> VaultError {
    VaultError::Refused { service: NAME, cause: cause.to_owned() }
}

#[cfg(test)]
mod tests;
