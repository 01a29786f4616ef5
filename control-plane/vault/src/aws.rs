//! AWS KMS over its JSON API, by signed requests.
//!
//! Owns: the requests `Encrypt` and `Decrypt` with the encryption context of a record. Keeps true: only the configured key
//! unwraps, so that a record whose key id was replaced does not open with a stranger's key; each request is attempted a few
//! times at most, within a timeout; neither an error nor a log line contains a data key, a credential or a signature; the
//! encryption context, which AWS logs, names the org and the kind of a record but not whose it is.

use std::fmt;

use asp_platform::secret::Secret;
use async_trait::async_trait;
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::error::VaultError;
use crate::key_service::{DataKey, KeyService, WrappedKey};
use crate::place::Place;

mod client;
mod signature;

use client::{KmsClient, KmsFault};

/// Name of this service in records.
const NAME: &str = "aws";
/// Maximum length of the ARN of a key in bytes (KMS API, `KeyId`).
const MAX_ARN: usize = 2_048;

/// ARN of a KMS key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyArn {
    text: String,
    region: String,
    /// Domain of the partition's endpoints.
    domain: &'static str,
}

impl KeyArn {
    /// Reads `arn:aws:kms:REGION:ACCOUNT:key/ID`; `None` for anything else. An alias may change its key, and answers name the
    /// key, so that records would always look outdated.
    pub fn parse(text: &str) -> Option<KeyArn> {
        let is_word = |word: &str| {
            !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if text.len() > MAX_ARN {
            return None;
        }
        let parts: Vec<&str> = text.splitn(6, ':').collect();
        let ["arn", partition, "kms", region, account, resource] = parts.as_slice() else { return None };
        let domain = match *partition {
            "aws" | "aws-us-gov" => "amazonaws.com",
            "aws-cn" => "amazonaws.com.cn",
            _ => return None,
        };
        let id = resource.strip_prefix("key/")?;
        let is_arn = is_word(region) && is_word(account) && is_word(id);
        is_arn.then(|| KeyArn { text: text.to_owned(), region: (*region).to_owned(), domain })
    }

    fn endpoint(&self) -> String {
        format!("https://kms.{}.{}", self.region, self.domain)
    }
}

impl fmt::Display for KeyArn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Credentials that sign the requests.
#[derive(Clone, Debug)]
pub struct AwsCredentials {
    pub access_key: Secret,
    pub secret_key: Secret,
    /// Session token of temporary credentials.
    pub session_token: Option<Secret>,
}

/// Reason why the client could not be created.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ClientError(String);

/// Key service with one key of AWS KMS.
pub struct AwsKms {
    key: KeyArn,
    client: KmsClient,
}

impl AwsKms {
    /// Creates the service, without connecting. `endpoint` is an origin, by default that of the key's region.
    pub fn open(
        key: KeyArn,
        endpoint: Option<&str>,
        credentials: AwsCredentials,
    ) -> Result<AwsKms, ClientError> {
        let endpoint = endpoint.map_or_else(|| key.endpoint(), str::to_owned);
        let client = KmsClient::new(&endpoint, key.region.clone(), credentials).map_err(ClientError)?;
        Ok(AwsKms { key, client })
    }
}

/// Encryption context of a record. AWS writes it to CloudTrail: the row, which names a user, is only in the digest.
#[derive(Serialize)]
struct EncryptionContext<'a> {
    #[serde(rename = "asp:org")]
    org: &'a str,
    #[serde(rename = "asp:table")]
    table: &'a str,
    /// SHA-256 of the place.
    #[serde(rename = "asp:place")]
    place: String,
}

impl<'a> EncryptionContext<'a> {
    fn of(place: &Place<'a>) -> EncryptionContext<'a> {
        let place_digest = signature::hex(digest(&SHA256, &place.to_bytes()).as_ref());
        EncryptionContext { org: place.tenant, table: place.table, place: place_digest }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct EncryptRequest<'a> {
    key_id: &'a str,
    plaintext: &'a str,
    encryption_context: EncryptionContext<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct EncryptResponse {
    ciphertext_blob: String,
    key_id: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct DecryptRequest<'a> {
    key_id: &'a str,
    ciphertext_blob: String,
    encryption_context: EncryptionContext<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct DecryptResponse {
    plaintext: String,
}

#[async_trait]
impl KeyService for AwsKms {
    fn name(&self) -> &'static str {
        NAME
    }

    fn is_remote(&self) -> bool {
        true
    }

    async fn current_key(&self) -> Result<String, VaultError> {
        Ok(self.key.text.clone())
    }

    async fn wrap(&self, data_key: &DataKey, place: &Place<'_>) -> Result<WrappedKey, VaultError> {
        let plaintext = Zeroizing::new(STANDARD.encode(data_key.expose()));
        let request = EncryptRequest {
            key_id: &self.key.text,
            plaintext: &plaintext,
            encryption_context: EncryptionContext::of(place),
        };
        let answer = self.client.call::<EncryptResponse>("Encrypt", &request).await;
        let EncryptResponse { ciphertext_blob, key_id } = answer.map_err(|fault| self.error(fault))?;
        if key_id != self.key.text {
            return Err(unexpected("answered with another key than the configured one"));
        }
        let bytes = STANDARD.decode(ciphertext_blob);
        let bytes = bytes.map_err(|_| unexpected("answered with a ciphertext that is not base64"))?;
        Ok(WrappedKey { key_id, bytes })
    }

    async fn unwrap(&self, wrapped: &WrappedKey, place: &Place<'_>) -> Result<DataKey, VaultError> {
        if wrapped.key_id != self.key.text {
            return Err(self.unknown(&wrapped.key_id));
        }
        let request = DecryptRequest {
            key_id: &self.key.text,
            ciphertext_blob: STANDARD.encode(&wrapped.bytes),
            encryption_context: EncryptionContext::of(place),
        };
        let answer = self.client.call::<DecryptResponse>("Decrypt", &request).await;
        let plaintext = Zeroizing::new(answer.map_err(|fault| self.error(fault))?.plaintext);
        let bytes = STANDARD.decode(plaintext.as_bytes()).map(Zeroizing::new);
        let bytes = bytes.map_err(|_| unexpected("answered with a data key that is not base64"))?;
        DataKey::from_slice(&bytes).ok_or(VaultError::NotOpened)
    }
}

impl AwsKms {
    fn unknown(&self, key_id: &str) -> VaultError {
        VaultError::UnknownKey { key_id: format!("{NAME}:{key_id}") }
    }

    fn error(&self, fault: KmsFault) -> VaultError {
        let unavailable = |cause| VaultError::Unavailable { service: NAME, cause };
        match fault {
            KmsFault::Silent(cause) => unavailable(cause),
            KmsFault::Resting => {
                unavailable("it has failed repeatedly and is tried again in some seconds".into())
            }
            KmsFault::Refused { status, code } => match code.as_str() {
                "InvalidCiphertextException" | "IncorrectKeyException" => VaultError::NotOpened,
                "NotFoundException" => self.unknown(&self.key.text),
                // Not a word about the key: its data keys stay usable while an operator renews the credentials.
                "ExpiredTokenException"
                | "InvalidSignatureException"
                | "UnrecognizedClientException"
                | "InvalidClientTokenId"
                | "MissingAuthenticationTokenException"
                | "IncompleteSignature" => unavailable(format!("credentials are not accepted: {code}")),
                _ if fault_may_pass(status, &code) => unavailable(format!("{status} {code}")),
                _ => VaultError::Refused {
                    service: NAME,
                    cause: format!("{status} {code} for key {}", self.key),
                },
            },
        }
    }
}

fn unexpected(cause: &str) -> VaultError {
    VaultError::Refused { service: NAME, cause: cause.to_owned() }
}

/// Whether a refused request may succeed soon (KMS API, "Common errors", and errors of `Encrypt` and `Decrypt`).
fn fault_may_pass(status: u16, code: &str) -> bool {
    let passing = [
        "DependencyTimeoutException",
        "KMSInternalException",
        "KeyUnavailableException",
        "LimitExceededException",
        "RequestExpired",
        "RequestLimitExceeded",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
    ];
    status >= 500 || matches!(status, 408 | 429) || passing.contains(&code)
}

#[cfg(test)]
mod tests;
